// delta_torch: the allocators.
#include "allocator.hpp"

#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <string>
#include <utility>

#include "errors.hpp"
#include "flights.hpp"
#include "replay.hpp"
#include "replaying.hpp"
#include "session.hpp"
#include "versions.hpp"

namespace delta_torch {

namespace {

/// Of the device that is managed: all that is allocated there while a run is on counts.
class budgeted_allocator final : public run_allocator {
 public:
  at::DataPtr allocate(std::size_t size) override {
    session& s = session::get();
    if (size == 0)
      return s.device().is_current() ? at::DataPtr(nullptr, s.device().device())
                                     : s.device().uncounted(0);
    at::DataPtr made = take(s, size);
    if (made.get() != nullptr) return made;
    const std::string sentence =
        "the system has none for " + std::to_string(size) + " bytes more, of whatever budget";
    if (this_thread().replay != nullptr) throw no_scratch(sentence);
    throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, out_of_memory(sentence));
  }
  void copy_data(void* to, const void* from, std::size_t size) const override {
    session::get().device().copy(to, from, size);
  }
  bool used_by(const at::DataPtr& data, c10::Stream stream) override {
    session& s = session::get();
    // Whose thread has the lock may be the manager's, or a replay's: what these use is in order.
    if (session::inside::here() || this_thread().replay != nullptr) return false;
    const session::inside lock(s);
    return s.on() && s.used_by(data, stream);
  }
  // Only the host's memory can be freed by its address alone.
  at::DeleterFnPtr raw_deleter() const override {
    return session::get().device().device().is_cpu() ? &release_memory : nullptr;
  }

 private:
  static at::DataPtr take(session& s, std::size_t size) {
    thread_state& thread = this_thread();
    if (thread.replay != nullptr) return thread.replay->allocate(size);
    // A worker of the kernel that is replayed: the thread that waits for it has the lock.
    // And another device of the same type has the same allocator, which is not asked where.
    if (!s.on() || (replaying::anywhere() && at::in_parallel_region()) || !s.device().is_current())
      return s.device().uncounted(size);
    for (bool may_wait = !thread.within_callback;;) {
      c10::intrusive_ptr<c10::ivalue::Future> awaited;
      at::DataPtr made = try_to_take(s, thread, size, may_wait ? &awaited : nullptr);
      if (!awaited) return made;
      may_wait = wait_for(*awaited);
    }
  }

  // `awaited`: where there is no room before this collective is over, it is given in place of an
  // error.
  static at::DataPtr try_to_take(session& s, thread_state& thread, std::size_t size,
                                 c10::intrusive_ptr<c10::ivalue::Future>* awaited) {
    const session::inside lock(s, thread);
    if (!s.on()) return s.device().uncounted(size);
    // A number of the program's text, as `x + 1` has, is gone with its operator: it costs more to
    // count than to make. What lasts counts from when an operator uses it, as a tensor of before
    // the run. All else that a managed thread makes is made by operators.
    if (size <= storage_role::largest_value && s.taken.operation == 0 &&
        c10::impl::tls_is_dispatch_key_included(dispatch_key()) && managed_device().is_cpu())
      return s.device().uncounted(size);
    // What a kernel takes piece by piece is known when it has ended.
    const char* const addition =
        s.taken.operation != 0 ? "; what this kernel takes after that is not known" : "";
    header* const taken = translated(
        s,
        [&]() -> header* {
          try {
            return &s.take(size);
          } catch (const delta::budget_exceeded& e) {
            // An error of it would end the collective in all processes, and it is what would be
            // waited for.
            if (session::is_groups_thread()) {
              s.past().own.collective_over += size;
              return nullptr;
            }
            auto landing = s.landing_to_await(awaited != nullptr);
            if (!landing && s.lift_limit(e)) return &s.take(size);
            if (!landing) {
              s.taken.refused = true;
              throw;
            }
            *awaited = std::move(landing);
            return nullptr;
          }
        },
        addition);
    if (taken == nullptr)
      return awaited != nullptr && *awaited ? at::DataPtr() : s.device().uncounted(size);
    header& h = *taken;
    h.place = thread.allocations++;
    // A kernel may leave bytes unwritten that nobody reads: they are the same when it runs again.
    // Outside operators another stream may use them than clears them.
    if (s.clears() && (thread.within_operator || managed_device().is_cpu()))
      s.device().clear(h.memory, size);
    return s.device().pointer(h);
  }
};

budgeted_allocator ours;

}  // namespace

void install_allocator() {
  session::get().device().install(ours);
}

void remove_allocator() {
  session::get().device().remove();
}

}  // namespace delta_torch
