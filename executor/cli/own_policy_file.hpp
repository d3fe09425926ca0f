// delta executor: a policy of the user's own, in a C++ header that a flag names: compiled, loaded,
// and from then on a policy like any other.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace delta::executor {

/// A header, and what it calls the policy: a struct with the members of a role, or a function that
/// returns one or a whole policy (engine/own/own_policy.hpp). In roles that a struct does not have
/// it is `online`.
struct own_policy_file {
  std::filesystem::path header;
  std::string name;
};

/// Reads `FILE:NAME`. Throws usage_error where it is not of that form, there is no such file, or a
/// policy of delta's own has the name.
own_policy_file own_policy_file_of(std::string_view flag, std::string_view text);

/// Compiles it to a shared library with the compiler that the environment variable CXX names, or
/// c++, which takes some ten seconds, and loads that: from then on `make_any_manager` takes the
/// name. Nothing is left on disk. Throws usage_error with a sentence for each thing that is wrong
/// with the policy, and std::runtime_error where there is no compiler, or delta's headers are gone.
void load(const own_policy_file&);

}  // namespace delta::executor
