#include "platforms/units.hpp"
namespace orrery {}
