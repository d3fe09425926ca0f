// delta executor: whether kernels were accepted.
#pragma once

namespace delta::executor {

/// Throws cuda_error unless all launches so far were accepted; `what` was launched last. Waits for
/// nothing, and so tells nothing of what they come to.
void check_launch(const char* what);

}  // namespace delta::executor
