// A strategy seen as Megatron-LM's arguments: names with underscores, values as Python has them.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace orrery {

// std::monostate is Python's None.
using Argument = std::variant<double, bool, std::string, std::monostate>;
using ArgumentTable = std::vector<std::pair<std::string, Argument>>;

// Every argument that `megatron_arguments` gives, in its order, each with a value of its kind that is not
// None.
const ArgumentTable& argument_examples();

}  // namespace orrery
