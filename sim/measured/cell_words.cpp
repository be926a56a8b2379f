#include "sim/measured/cell_words.hpp"

#include <algorithm>
#include <array>
#include <boost/algorithm/string/replace.hpp>
#include <cctype>

#include "sim/measured/cell_text.hpp"

namespace orrery {
namespace {

template <std::size_t Count>
bool is_one_of(std::string_view word, const std::array<std::string_view, Count>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Of what is after them; of what is before them; of what is beside them.
constexpr std::array<std::string_view, 11> kDenyNext{"no",    "not",     "non",      "without",
                                                     "never", "exclude", "excludes", "excluding",
                                                     "excl",  "ignores", "ignoring"};
constexpr std::array<std::string_view, 3> kDenyLast{"no", "never", "0"};
constexpr std::array<std::string_view, 7> kDenyEither{"off",    "false",    "disabled", "disable",
                                                      "unused", "disables", "none"};
// After "not" they say no more than off.
constexpr std::array<std::string_view, 15> kInForce{
    "used",      "enabled",  "on",      "active",   "applied",   "available", "supported", "considered",
    "installed", "included", "counted", "employed", "activated", "set",       "accounted"};

bool is_word_character(std::string_view text, std::size_t at, std::string_view also) {
  const auto is_digit = [&](std::size_t i) {
    return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0;
  };
  if (text[at] == '.') return at > 0 && is_digit(at - 1) && is_digit(at + 1);
  return std::isalnum(static_cast<unsigned char>(text[at])) != 0 ||
         also.find(text[at]) != std::string_view::npos;
}

class Clauses {
 public:
  void add(std::string word, bool is_linked) {
    Clause& clause = all_.back();
    if (word == "but") return end();
    if (word == "0" && is_linked) word = "false";
    if (!clause.empty() && clause.back() == "not" && is_one_of(word, kInForce)) {
      clause.pop_back();
      word = "off";
    }
    const bool ends = !clause.empty() && is_one_of(word, kDenyEither);
    clause.push_back(std::move(word));
    if (ends) end();
  }
  void end() {
    if (!all_.back().empty()) all_.emplace_back();
  }
  [[nodiscard]] std::vector<Clause> found() && {
    if (all_.back().empty()) all_.pop_back();
    return std::move(all_);
  }

 private:
  std::vector<Clause> all_{1};
};

// Where a spelling is in a clause: its first and last word.
struct Place {
  std::size_t first, last;
};

std::vector<Place> places(const Clause& clause, std::string_view spelling) {
  const bool inside = spelling.starts_with('*'), open = spelling.ends_with('*');
  if (inside) spelling.remove_prefix(1);
  if (open) spelling.remove_suffix(1);
  std::string letters;
  std::vector<std::size_t> words;  // of each letter
  for (std::size_t i = 0; i < clause.size(); ++i) {
    letters += clause[i];
    words.resize(letters.size(), i);
  }
  std::vector<Place> found;
  for (std::size_t at = letters.find(spelling); at != std::string::npos;
       at = letters.find(spelling, at + 1)) {
    const std::size_t end = at + spelling.size();
    const bool begins = at == 0 || words[at - 1] != words[at];
    const bool ends = end == letters.size() || words[end] != words[end - 1];
    if ((begins || inside) && (ends || open)) found.push_back({words[at], words[end - 1]});
  }
  return found;
}

bool is_denied(const Clause& clause, const Place& place) {
  if (place.first > 0 && is_one_of(clause.front(), kDenyEither)) return true;
  for (std::size_t i = 0; i < place.first; ++i) {
    if (is_one_of(clause[i], kDenyNext)) return true;
  }
  const std::string& end = clause.back();
  return place.last + 1 < clause.size() && (is_one_of(end, kDenyLast) || is_one_of(end, kDenyEither));
}

}  // namespace

std::vector<Clause> clauses_of(std::string_view cell, std::string_view also) {
  const std::string text = boost::replace_all_copy(lower_case(std::string(cell)), "w/o", "without ");
  Clauses clauses;
  bool is_linked = false;  // by = or : to the word before
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!is_word_character(text, at, also)) {
      if (std::string_view(",;()[]{}+&|").find(text[at]) != std::string_view::npos) clauses.end();
      is_linked = is_linked || text[at] == '=' || text[at] == ':';
      continue;
    }
    const std::size_t start = at;
    while (at + 1 < text.size() && is_word_character(text, at + 1, also)) ++at;
    clauses.add(text.substr(start, at + 1 - start), is_linked);
    is_linked = false;
  }
  return std::move(clauses).found();
}

bool denies(std::string_view word) {
  return is_one_of(word, kDenyNext) || is_one_of(word, kDenyLast) || is_one_of(word, kDenyEither);
}

bool is_denial(const Clause& clause) {
  return !clause.empty() && std::all_of(clause.begin(), clause.end(), denies);
}

Said said(const std::vector<Clause>& clauses, std::initializer_list<std::string_view> spellings) {
  Said found = Said::nothing;
  for (const Clause& clause : clauses) {
    for (const std::string_view spelling : spellings) {
      for (const Place& place : places(clause, spelling)) {
        if (!is_denied(clause, place)) return Said::yes;
        found = Said::no;
      }
    }
  }
  return found;
}

bool affirms(const std::vector<Clause>& clauses, std::initializer_list<std::string_view> spellings) {
  return said(clauses, spellings) == Said::yes;
}

}  // namespace orrery
