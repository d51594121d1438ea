#pragma once

// A model on a backend of its own, for tests that run steps.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "glog/logging.h"
#include "worker/device/cpu_backend.h"
#include "worker/exec/executor.h"
#include "worker/model/model.h"

namespace octavo {

struct LoadedModel {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;

  static LoadedModel Load(const std::string& path, uint32_t threads, kernels::Isa isa,
                          uint32_t max_tokens_per_step = 512) {
    LoadedModel loaded;
    absl::StatusOr<std::unique_ptr<Backend>> backend =
        CreateCpuBackend({.threads = threads, .isa = isa});
    CHECK(backend.ok()) << backend.status();
    loaded.backend = *std::move(backend);
    absl::StatusOr<std::unique_ptr<GgufFile>> file = GgufFile::Open(path);
    CHECK(file.ok()) << file.status();
    absl::StatusOr<std::unique_ptr<Model>> model = Model::Load(
        *std::move(file), *loaded.backend, {.max_tokens_per_step = max_tokens_per_step});
    CHECK(model.ok()) << model.status();
    loaded.model = *std::move(model);
    return loaded;
  }

  std::unique_ptr<Executor> MakeExecutor(const ExecutorOptions& options) const {
    absl::StatusOr<std::unique_ptr<Executor>> executor = Executor::Create(*model, options);
    CHECK(executor.ok()) << executor.status();
    return *std::move(executor);
  }
};

}  // namespace octavo
