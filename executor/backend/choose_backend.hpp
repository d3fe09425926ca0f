// delta executor: which machine a run is on, by its options and by what this machine has.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "backend/backend.hpp"
#include "cli/options.hpp"
#include "delta/units.hpp"

namespace delta::executor {

/// Whether a run is on a GPU: asked for, or left open and one answers or this build has nothing
/// else.
[[nodiscard]] bool on_gpu(const train_options&) noexcept;

/// The backend of a run; `warn` is told, in a line, of what goes on but not as it should. Throws
/// cuda_error where --device cuda can't be had, no_cpu_backend where --device cpu can't.
std::unique_ptr<backend> choose_backend(const train_options&,
                                        std::function<void(std::string_view)> warn = {});

/// Throws usage_error where the device has less free than an arena for `what` takes ("--budget",
/// "--host-budget"): a line that names both.
void check_against_device(std::string_view what, bytes wanted, const backend&);

}  // namespace delta::executor
