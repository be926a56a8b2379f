#include "sim/commands/commands.hpp"

int main(int count, char** arguments) {
  return orrery::run_program(count, arguments);
}
