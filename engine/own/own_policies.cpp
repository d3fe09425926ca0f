// delta: loads the libraries of policies of one's own.
#include "own_policies.hpp"

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "policy_library.hpp"

namespace delta::own {

namespace {

struct loaded {
  std::mutex lock;
  std::map<std::string, const policy_library*, std::less<>> libraries;
};
loaded& all() {
  static loaded& one = *new loaded;  // as the libraries, until the process ends
  return one;
}

}  // namespace

void load_policy(const std::string& name, const std::string& file) {
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    // NOLINTNEXTLINE(concurrency-mt-unsafe): glibc keeps it by thread
    throw std::runtime_error("delta: the policy '" + name + "' can't be loaded: " + dlerror());
  auto* const get =
      reinterpret_cast<policy_library_function*>(dlsym(handle, policy_library_symbol));
  if (get == nullptr) throw std::runtime_error("delta: '" + file + "' is no library of a policy");
  const policy_library* const library = get();
  if (library->abi != this_abi)
    throw std::runtime_error("delta: the policy '" + name +
                             "' was compiled for another version of delta or another C++ library "
                             "than this program");
  loaded& to = all();
  const std::lock_guard hold(to.lock);
  to.libraries[name] = library;
}

std::vector<std::string> policies() {
  loaded& from = all();
  const std::lock_guard hold(from.lock);
  std::vector<std::string> names;
  names.reserve(from.libraries.size());
  for (const auto& [name, library] : from.libraries) names.push_back(name);
  return names;
}

std::unique_ptr<manager_interface> make_manager(std::string_view policy,
                                                std::unique_ptr<any_storage> storage,
                                                const manager_options& options) {
  loaded& from = all();
  const policy_library* own = nullptr;
  {
    const std::lock_guard hold(from.lock);
    if (const auto at = from.libraries.find(policy); at != from.libraries.end()) own = at->second;
  }
  return own != nullptr ? own->make(std::move(storage), options)
                        : delta::make_manager(policy, std::move(storage), options);
}

}  // namespace delta::own
