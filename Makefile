# SPDX-License-Identifier: Apache-2.0
# Thin: every target calls a script of build/, which can be called by hand too.

PYTEST_ARGS ?=
BENCH ?=
CHECKS ?=
KERNELS ?=

.DEFAULT_GOAL := help
.PHONY: help run setup native test test-large kernel-test cluster-test lint format wheel gadget container bench gpu-checks clean

help: ## what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

run: ## try it: set up, then record two CUDA programs and show the reports (root)
	@build/run.sh

setup: ## packages, .work/venv, extension, BPF objects; what is done is not done again
	@build/setup.sh

native: ## only the extension and the BPF objects
	@build/native.sh

test: ## all tests (root); PYTEST_ARGS="-k words" for some
	@build/test.sh $(PYTEST_ARGS)

test-large: ## tests with PyTorch, 540 MB to download and 1.2 GB of disk (root); PYTEST_ARGS as above
	@build/test-large.sh $(PYTEST_ARGS)

kernel-test: ## Debian's 6.1 and 6.12 kernels in a virtual machine: loads, attaches, counts, stacks (root); KERNELS=6.1. for one
	@build/kernel-test.sh $(KERNELS)

cluster-test: ## a real Kubernetes of two nodes: profiles of its pods, whatever is killed (root, Go); PYTEST_ARGS as above
	@build/cluster-test.sh $(PYTEST_ARGS)

lint: ## types, style, layers, licences
	@build/lint.sh

format: ## lets ruff and clang-format rewrite the sources
	@build/lint.sh --fix

wheel: ## dist/*.whl with the BPF objects and libbpf inside
	@build/wheel.sh

gadget: ## dist/profile_cuda_memory.tar, the image for Inspektor Gadget
	@build/gadget.sh

container: ## .work/container/image.tar, the image of deploy/agent.yaml (root, Debian, mmdebstrap)
	@build/container.sh

bench: ## speed, with the floor beside it (root, a quiet machine); BENCH="pairs" for some
	@build/bench.sh $(BENCH)

gpu-checks: ## what only a GPU can show, as Markdown (root); CHECKS="ipc uuid" for some
	@build/gpu-checks.sh $(CHECKS)

clean: ## removes all that the other targets made inside this folder
	@build/clean.sh
