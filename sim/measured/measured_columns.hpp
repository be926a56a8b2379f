// The columns of a table of measured runs, and what else people call them.
#pragma once

#include <string>
#include <vector>

namespace orrery {

const std::vector<std::string>& known_columns();
const std::vector<std::string>& needed_columns();
// ", did you mean 'gpus'?": the title that is nearly that column, or another name of it; else empty.
std::string title_meant_by(const std::string& column, const std::vector<std::string>& titles);
// A sentence for each title that is not read though it is nearly, or means, a column that is and that the
// table lacks: "column 'recomputation' is not read, did you mean 'recompute'?"
std::vector<std::string> remarks_on_titles(const std::vector<std::string>& titles);

}  // namespace orrery
