// Rows of text and numbers, printed for people or as CSV.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orrery {

enum class Align { left, right };

struct TableColumn {
  std::string title;
  Align align = Align::left;  // right for numbers
};

// Every row has one cell a column.
struct Table {
  std::vector<TableColumn> columns;
  std::vector<std::vector<std::string>> rows;
};

// Columns two blanks apart, a rule under the header, no blanks at the end of a line. Control characters in a
// cell become blanks, so that a name cannot break the table or the terminal.
std::string to_text(const Table&);
// Takes columns away, in the order of `first_to_go`, until the text is at most `width` wide or none of them
// is left. Returns the titles of those it took.
std::vector<std::string> narrow(Table&, std::size_t width, const std::vector<std::string>& first_to_go);

// RFC 4180 with a header; lines end in "\n", which every reader of CSV takes, rather than "\r\n".
std::string to_csv(const Table&);

// With `digits` decimals; what rounds to zero has no sign. "-" where there is no number.
std::string fixed(double value, int digits);

// The cell as RFC 4180 writes it: quoted where it holds a comma, a quote or a line break.
std::string csv_cell(std::string_view);

// Columns of a terminal that UTF-8 text takes: combining marks none, East Asian wide characters two.
std::size_t display_width(std::string_view);

}  // namespace orrery
