// The cells of a schedule file: inside of its reader.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

enum class CellKind {
  forward,         // F
  backward,        // B: both gradients, or, where the file has a W for the same microbatch, that of the input
  full_backward,   // BW: both gradients, in files of old releases
  input_gradient,  // I
  weight_gradient,  // W
  transfer,         // SEND_F, RECV_F, SEND_B, RECV_B
  other,            // UNSHARD, RESHARD, REDUCE_GRAD
};

struct Cell {
  CellKind kind = CellKind::forward;
  int stage = 0;
  int microbatch = 0;
  int line = 0, column = 0;  // from 1; the rank is line - 1
  std::string text;
};

// The cells of every rank in order; idle ones are left out. Throws InputError.
std::vector<std::vector<Cell>> read_schedule_cells(std::string_view text, const std::string& file);

// "<file>:<line>, cell <column> (rank <line - 1>)".
std::string place_of(const Cell&, const std::string& file);

}  // namespace orrery
