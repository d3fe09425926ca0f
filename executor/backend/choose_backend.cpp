#include "backend/choose_backend.hpp"

#include <optional>
#include <string>
#include <utility>

#include "cli/format.hpp"

namespace delta::executor {

bool on_gpu(const train_options& o) noexcept {
  return o.device == device_choice::cuda ||
         (o.device == device_choice::automatic && (cuda_answers() || !cpu_support()));
}

std::unique_ptr<backend> choose_backend(const train_options& o,
                                        std::function<void(std::string_view)> warn) {
  if (!on_gpu(o)) {
    // Under a virtual clock nothing depends on real copies, and without a policy nothing is copied.
    std::optional<int> copiers = o.copy_threads;
    if (o.virtual_clock || o.policy == "unmanaged") copiers = copiers.value_or(2);
    return make_cpu_backend({.threads = o.threads,
                             .copy_rate = o.copy_rate,
                             .copy_threads = copiers,
                             .overlap = o.overlap});
  }
  return make_cuda_backend({.device = o.gpu,
                            .tf32 = o.tf32,
                            .cudnn = o.cudnn,
                            .cudnn_norm = o.cudnn_norm,
                            .legacy = o.legacy,
                            .virtual_memory = o.virtual_memory,
                            .workspace_cap = o.workspace_cap,
                            .overlap = o.overlap,
                            .fill_rounding = o.fill_rounding,
                            .warn = std::move(warn)});
}

void check_against_device(std::string_view what, bytes wanted, const backend& on) {
  const bytes free = on.free_memory();
  if (free == bytes{} || wanted <= free) return;
  throw usage_error(std::string(what) + ": takes " + format_bytes(wanted) + " (" +
                    std::to_string(wanted.count) + " bytes), but " + format_bytes(free) +
                    " are free on " + on.description() + "; allowed: up to " +
                    std::to_string(free.count) + " bytes");
}

}  // namespace delta::executor
