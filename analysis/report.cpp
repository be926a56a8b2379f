#include "analysis/report.hpp"

#include <string_view>

#include "analysis/report_data.hpp"
#include "platforms/embedded.hpp"
#include "platforms/errors.hpp"
#include "traces/output_file.hpp"

extern "C" const orrery::EmbeddedRow orrery_embedded_analysis[];

namespace orrery {
namespace {

// By the end of its name: the chart library is copied to the build folder before it is embedded.
std::string_view page_part(std::string_view name) {
  for (const EmbeddedFile& file : embedded_files(orrery_embedded_analysis)) {
    if (file.name.size() >= name.size() && file.name.substr(file.name.size() - name.size()) == name) {
      return file.content;
    }
  }
  throw Defect("no part of the report page is called " + std::string(name));
}

std::string escape_html(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string table_html(const Table& table) {
  if (table.columns.empty()) return {};
  const auto cell = [&table](const char* tag, std::size_t column, std::string_view text) {
    const char* style = table.columns[column].align == Align::right ? " class=\"number\"" : "";
    return std::string("<") + tag + style + ">" + escape_html(text) + "</" + tag + ">";
  };
  std::string html = "<table id=\"plans-table\">\n<thead><tr>";
  for (std::size_t i = 0; i < table.columns.size(); ++i) html += cell("th", i, table.columns[i].title);
  html += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    ORRERY_ENSURE(row.size() == table.columns.size());
    html += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) html += cell("td", i, row[i]);
    html += "</tr>\n";
  }
  return html + "</tbody>\n</table>";
}

std::string fill(std::string_view hole, const ReportInput& input) {
  if (hole == "title") return escape_html(input.title);
  if (hole == "summary") return escape_html(input.summary);
  if (hole == "plans") return table_html(input.plans);
  if (hole == "data") return report_json(input);
  return std::string(page_part(hole));
}

}  // namespace

std::string report_page(const ReportInput& input) {
  std::string page;
  std::string_view rest = page_part("report/page.html");
  for (auto open = rest.find("{{"); open != std::string_view::npos; open = rest.find("{{")) {
    const auto close = rest.find("}}", open);
    ORRERY_ENSURE(close != std::string_view::npos);
    page += rest.substr(0, open);
    page += fill(rest.substr(open + 2, close - open - 2), input);
    rest.remove_prefix(close + 2);
  }
  return page += rest;
}

void write_report(const std::string& path, const ReportInput& input) {
  write_file(path, report_page(input));
}

}  // namespace orrery
