#pragma once

#include "model.h"

namespace baton {

// Fills model.plan for `step`, which must outlive the run, and grows the work space. Throws std::bad_alloc.
void plan_step(Model& model, const Step& step);

}  // namespace baton
