#include "costmodels/trust/classics.hpp"

#include "platforms/embedded.hpp"

extern "C" const orrery::EmbeddedRow orrery_embedded_costmodels[];

namespace orrery {

std::string_view classics_csv() {
  return embedded_file(orrery_embedded_costmodels, "measured/classics.csv");
}

}  // namespace orrery
