// Schedules as files of torch.distributed.pipelining (schedules.py, _Action; PipelineScheduleMulti's CSV): a
// line for each rank, its operations in order, as 0F0,1F0,1B0,0B0. A cell is a stage (model part), an action
// and a microbatch: F forward, B backward, or split into I for the input and W for the weights. Empty cells
// are idle time.
#pragma once

#include <string>
#include <string_view>

#include "strategies/schedule.hpp"

namespace orrery {

// The layout of parts is that of the file; a rank's chunks are its stages in rising order. Where only some
// backwards are split, the gradient of the others leaves after both halves. Messages follow from the order:
// SEND and RECV cells are only checked to name a stage of the rank; UNSHARD, RESHARD and REDUCE_GRAD say
// nothing here. Phases are those of the built-in schedule that has these orders, else as name_phases says
// (task_order.hpp). Throws InputError, `file` and line: unreadable cells; missing, doubled or disordered
// operations; ranks that would wait for each other for ever; blocking transfers, whose joined calls are
// Megatron-LM's own.
Schedule read_schedule_csv(std::string_view text, const std::string& file, TransferMode);

// The order of operations in that form. Read again it gives the same layout, steps and messages; only the
// kind of schedule, Megatron-LM's blocking calls and the microbatch group are not in the file.
std::string to_csv(const Schedule&);

}  // namespace orrery
