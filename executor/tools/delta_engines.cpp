// delta-engines: which of cuDNN's engines a model's convolutions get on GPUs that need not be
// there. Tables go to files or to stdout, errors to stderr, in one line each.
#include <CLI/CLI.hpp>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "cuda/cudnn_engines.hpp"
#include "train/engine_table.hpp"

namespace {

using namespace delta::executor;

constexpr int exit_failure = 1;
constexpr int exit_usage = 2;

struct request {
  std::vector<std::filesystem::path> gpus;
  std::vector<std::string> models{"resnet50", "resnet101", "resnext50_32x4d"};
  std::vector<int> batches{32, 128};
  std::filesystem::path json;
};

int complain(const std::string& line, int code) {
  std::cerr << "delta-engines: " << line << std::endl;
  return code;
}

/// The detailed table is of the first model, the last batch and the first GPU.
void run(const request& r) {
  written_rows rows{.version = cudnn_engines_version(), .rows = {}};
  std::vector<engine_line> lines;
  std::string what;
  for (const auto& file : r.gpus) {
    const gpu_description gpu = read_gpu(file);
    for (const std::string& model : r.models)
      for (const int batch : r.batches) {
        const engine_table table(model, batch, gpu);
        for (const bool tf32 : {true, false}) rows.rows.push_back(table.row(tf32));
        if (file == r.gpus.front() && model == r.models.front() && batch == r.batches.back()) {
          lines = table.lines();
          what = model + ", batch " + std::to_string(batch) + ", on an " + gpu.name;
        }
      }
  }
  if (!r.json.empty()) write_rows(r.json, rows.version, rows.rows);
  std::cout << engine_tables(rows, what, lines);
}

}  // namespace

int main(int argc, char** argv) {
  request r;
  CLI::App app(
      "Which of cuDNN's engines the convolutions of a training step get, on GPUs that are\n"
      "described in files and need not be there. Tables go to stdout, in Markdown.");
  app.add_option("gpus", r.gpus, "descriptions of GPUs, such as executor/tools/gpus/h100.json")
      ->required();
  app.add_option("--model", r.models, "models (default resnet50, resnet101, resnext50_32x4d)");
  app.add_option("--batch", r.batches, "images per step (default 32 and 128)")
      ->check(CLI::PositiveNumber);
  app.add_option("--json", r.json, "write the rows to this file, too");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return e.get_exit_code() == 0 ? app.exit(e) : complain(e.what(), exit_usage);
  }
  if (cudnn_engines_version().empty())
    return complain("this build has no cuDNN 9.8 or newer, which is what is asked", exit_usage);
  try {
    run(r);
  } catch (const std::exception& e) {
    return complain(e.what(), exit_failure);
  }
  return 0;
}
