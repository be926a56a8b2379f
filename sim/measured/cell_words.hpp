// Cells of tables word by word: what they name, and what of it they deny.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

// Words in lower case, as far as what denies one of them can reach.
using Clause = std::vector<std::string>;

// Parted at commas, semicolons, brackets, plus signs and "but", and after a word that denies what is before
// it ("fp8 off"). Words are of letters, digits, the point of a number, and `also`; "w/o" is without,
// "not used" off, "=0" false.
std::vector<Clause> clauses_of(std::string_view cell, std::string_view also = "");

// "no", "off", "none", "disabled", ...
bool denies(std::string_view word);
bool is_denial(const Clause&);  // of such words alone

enum class Said { nothing, no, yes };
// Whether one of the spellings is named without being denied, else whether one is denied: by a "no" before it
// or an "off" after it in its clause. A spelling is of small letters and digits, spaces and hyphens left out;
// it begins and ends with words, but for a * at that end: "zero1" is in "ZeRO-1", "*fp8*" in "MXFP8".
Said said(const std::vector<Clause>&, std::initializer_list<std::string_view> spellings);
bool affirms(const std::vector<Clause>&, std::initializer_list<std::string_view> spellings);

}  // namespace orrery
