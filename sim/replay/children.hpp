// Work in forked children: each replay needs a process of its own (SimGrid's clock), and many run at once.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace orrery {

// Returns the bytes that go back to the parent.
using ChildTask = std::function<std::string()>;

// Runs every task in a child, at most `jobs` at a time; element i is what task i returned, whatever the order
// they ended in. `done` hears how many have ended. An InputError or Defect thrown in a child is thrown here
// again (the one of the first such task); a child that dies is a Defect that says how. Call it before any
// thread exists.
std::vector<std::string> run_in_children(const std::vector<ChildTask>& tasks, int jobs,
                                         const std::function<void(std::size_t)>& done = {});

}  // namespace orrery
