// delta executor: a training run under a budget, and its unmanaged twin.
#pragma once

#include <iosfwd>

#include "cli/options.hpp"
#include "model/models.hpp"
#include "train/report.hpp"

namespace delta::executor {

/// What the options say of a model that is trained on images of `channels` channels in `classes`
/// classes.
model_options model_of(const train_options&, int channels, int classes);

/// A report that holds what the options say of a run, and nothing of what came of it.
train_report describe(const train_options&);

/// Trains as the options say and reports. Progress (what is being built, which run, which step)
/// goes to `progress`, a line each. Throws usage_error (a batch larger than the data), data_error
/// (a file that can't be used) and delta's typed memory errors (a budget that nothing fits).
train_report train(const train_options&, std::ostream& progress);

}  // namespace delta::executor
