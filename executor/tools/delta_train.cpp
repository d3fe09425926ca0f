// delta-train: trains a ResNet under a byte budget and compares with the unmanaged run.
// Results go to stdout and --json, progress and errors to stderr, errors in one line each.
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.hpp"
#include "cli/options.hpp"
#include "data/data_file.hpp"
#include "delta/error.hpp"
#include "delta/version.hpp"
#include "device/cuda_error.hpp"
#include "peers/peer_names.hpp"
#include "train/budget_training.hpp"
#include "train/report.hpp"
#include "train/trainer.hpp"

namespace {

using namespace delta::executor;

constexpr int exit_failure = 1;
constexpr int exit_usage = 2;
constexpr int exit_memory = 3;
constexpr int exit_unconfirmed = 4;

int complain(std::string_view line, int code) {
  std::cerr << "delta-train: " << line << std::endl;
  return code;
}

/// What is known of a run that ended in a memory error.
train_report failed_report(const train_options& options, const delta::budget_exceeded& error) {
  train_report report = describe(options);
  report.budget_bytes = error.report.capacity.count;
  report.error = error.what();
  if (const auto named = error.report.smallest_budget; named.count > 0)
    report.smallest_budget_bytes = named.count;
  return report;
}

int differs() {
  return complain("--verify: the managed run differs from the unmanaged one", exit_failure);
}

int search(const train_options& options) {
  const budget_finding found = find_and_confirm(options, std::cerr);
  if (!options.json.empty()) write_json(found.report, options.json);
  print_finding(std::cout, found);
  if (found.report.bit_identical == false) return differs();
  if (found.confirmed()) return EXIT_SUCCESS;
  return complain("--find-budget: " + why_unconfirmed(found), exit_unconfirmed);
}

int run(const train_options& options) {
  try {
    const train_report report = train(options, std::cerr);
    if (!options.json.empty()) write_json(report, options.json);
    print_table(std::cout, {&report, 1});
    if (report.bit_identical == false) return differs();
    return EXIT_SUCCESS;
  } catch (const delta::budget_exceeded& error) {
    if (!options.json.empty()) write_json(failed_report(options, error), options.json);
    return complain(error.what(), exit_memory);
  }
}

/// A device that can't be had is a flag that can't be used; what fails on it later is a failure.
int exit_code(const cuda_error& error) {
  using kind = cuda_failure::kind;
  switch (error.failure.what) {
    case kind::absent:
    case kind::no_device:
    case kind::no_such_device:
    case kind::driver_too_old:
    case kind::unsupported:
      return exit_usage;
    default:
      return exit_failure;
  }
}

/// "delta-train 0.2.0, commit 6131a99; CUDA 13.0, cuDNN 9.19; CPU", as scripts read it.
std::string version_line() {
  std::string line = "delta-train " + std::to_string(DELTA_VERSION_MAJOR) + "." +
                     std::to_string(DELTA_VERSION_MINOR) + "." +
                     std::to_string(DELTA_VERSION_PATCH) + ", commit " DELTA_COMMIT;
  if (!cuda_support().empty()) line += "; " + std::string(cuda_support());
  if (cpu_support()) line += "; CPU";
  return line;
}

int print_reports(const std::vector<std::filesystem::path>& files) {
  std::vector<train_report> reports;
  try {
    for (const auto& file : files) reports.push_back(read_json(file));
  } catch (const std::runtime_error& error) {
    throw usage_error("--table: " + std::string(error.what()));
  }
  print_table(std::cout, reports);
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  // A file that grows over a limit is then an error with a line.
  static_cast<void>(std::signal(SIGXFSZ, SIG_IGN));
  try {
    const command wanted = parse_options(argc, argv, delta::executor::all_policies);
    switch (wanted.what) {
      case command::action::print:
        std::cout << wanted.text;
        return EXIT_SUCCESS;
      case command::action::version:
        std::cout << version_line() << std::endl;
        return EXIT_SUCCESS;
      case command::action::table:
        return print_reports(wanted.reports);
      case command::action::train:
        return wanted.options.find_budget ? search(wanted.options) : run(wanted.options);
    }
  } catch (const usage_error& error) {
    return complain(error.what(), exit_usage);
  } catch (const data_error& error) {
    return complain(error.what(), exit_usage);
  } catch (const no_cpu_backend& error) {
    return complain(error.what(), exit_usage);
  } catch (const cuda_error& error) {
    return complain(error.what(), exit_code(error));
  } catch (const std::bad_alloc&) {
    return complain("the machine has no memory left", exit_failure);
  } catch (const std::exception& error) {
    return complain(error.what(), exit_failure);
  }
  return exit_failure;
}
