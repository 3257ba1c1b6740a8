// The kernels as a ggml backend of type ACCEL: llama.cpp offers it every weight before its own CPU
// backend, and it takes those it has a kernel for, repacked as they are loaded.
//
// Its buffers hold a model's packed weights, and the results that its operations leave in a graph.
// They are host memory, so the CPU backend reads and writes the latter in place. It could read packed
// weights as well, and would not understand them; it never does, since llama.cpp puts a weight here
// for the one operation that it asked about, and products with packed weights are always run here.
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "attention.h"
#include "ggml_abi.h"
#include "graph.h"
#include "matmul.h"
#include "rows.h"
#include "self_test.h"

namespace {

using namespace spec_cpu;

constexpr const char * NAME = "spec-cpu";
constexpr size_t HUGE_PAGE = size_t(2) << 20;

std::atomic<bool> accepting{false};  // new weights: models keep what they were loaded with

extern ggml_backend_device device;

// ---- buffers -----------------------------------------------------------------------------------

bool is_matrix(const ggml_tensor * t) { return t->ne[2] == 1 && t->ne[3] == 1 && !t->view_src; }

const Kernel * kernel_for(const ggml_tensor * t) {
    return is_matrix(t) ? find_kernel(t->type, t->ne[0], t->ne[1]) : nullptr;
}

size_t packed_bytes(const Kernel & kernel, const ggml_tensor * t) {
    return kernel.group_bytes(t->ne[0]) * size_t(t->ne[1] / lanes());
}

void buffer_free(ggml_backend_buffer_t buffer) { std::free(buffer->context); }
void * buffer_base(ggml_backend_buffer_t buffer) { return buffer->context; }
char * at(const ggml_tensor * t, size_t offset) { return static_cast<char *>(t->data) + offset; }

void buffer_memset(ggml_backend_buffer_t, ggml_tensor * t, uint8_t value, size_t offset, size_t size) {
    std::memset(at(t, offset), value, size);
}

void buffer_set(ggml_backend_buffer_t buffer, ggml_tensor * t, const void * data, size_t offset, size_t size) {
    const bool whole = offset == 0 && size == ggml_nbytes(t);
    const Kernel * kernel = buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS && whole ? kernel_for(t) : nullptr;
    if (!kernel) {
        std::memcpy(at(t, offset), data, size);
        return;
    }
    kernel->pack(data, t->ne[0], t->ne[1], t->data);
    mark_packed(t, kernel);
}

void buffer_get(ggml_backend_buffer_t, const ggml_tensor * t, void * data, size_t offset, size_t size) {
    GGML_ASSERT(!packed_for(t) && "packed weights cannot be read back");
    std::memcpy(data, at(t, offset), size);
}

void buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) { std::memset(buffer->context, value, buffer->size); }

constexpr ggml_backend_buffer_i BUFFER = {
    buffer_free, buffer_base, nullptr, buffer_memset, buffer_set, buffer_get,
    nullptr,     nullptr,     nullptr, buffer_clear,  nullptr,
};

const char * type_name(ggml_backend_buffer_type_t) { return NAME; }

ggml_backend_buffer_t type_alloc(ggml_backend_buffer_type_t type, size_t size) {
    // Weights are read from end to end at every step: with huge pages the processor finds them faster.
    const bool huge = size >= HUGE_PAGE;
    const size_t alignment = huge ? HUGE_PAGE : ALIGNMENT;
    void * memory = nullptr;
    if (posix_memalign(&memory, alignment, (size + SLACK + alignment - 1) / alignment * alignment)) return nullptr;
    if (huge) madvise(memory, size, MADV_HUGEPAGE);
    return ggml_backend_buffer_init(type, BUFFER, memory, size);
}

size_t type_alignment(ggml_backend_buffer_type_t) { return ALIGNMENT; }

size_t type_alloc_size(ggml_backend_buffer_type_t, const ggml_tensor * t) {
    const Kernel * kernel = t->op == GGML_OP_NONE ? kernel_for(t) : nullptr;
    const size_t bytes = ggml_nbytes(t);
    return kernel && packed_bytes(*kernel, t) > bytes ? packed_bytes(*kernel, t) : bytes;
}

bool type_is_host(ggml_backend_buffer_type_t) { return true; }

ggml_backend_buffer_type buffer_type = {
    {type_name, type_alloc, type_alignment, nullptr, type_alloc_size, type_is_host}, &device, nullptr};

// ---- backend -----------------------------------------------------------------------------------

Runner & runner(ggml_backend_t backend) { return *static_cast<Runner *>(backend->context); }

const char * backend_name(ggml_backend_t) { return NAME; }

void backend_free(ggml_backend_t backend) {
    delete &runner(backend);
    delete backend;
}

ggml_status backend_compute(ggml_backend_t backend, ggml_cgraph * graph) {
    runner(backend).run(graph);
    return GGML_STATUS_SUCCESS;
}

void set_threads(ggml_backend_t backend, int threads) { runner(backend).set_threads(threads); }

ggml_guid_t guid() {
    static ggml_guid id = {0x5e, 0xc0, 0xc9, 0x75, 0x1d, 0x3a, 0x4b, 0x62, 0x8f, 0x10, 0x27, 0xe4, 0xb3, 0x96, 0x51, 0x0d};
    return &id;
}

// ---- device ------------------------------------------------------------------------------------

const char * device_name(ggml_backend_dev_t) { return NAME; }
const char * device_description(ggml_backend_dev_t) { return isa(); }

void device_memory(ggml_backend_dev_t, size_t * free, size_t * total) { *free = *total = 0; }

enum ggml_backend_dev_type device_type(ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_ACCEL; }

void device_props(ggml_backend_dev_t, ggml_backend_dev_props * props) {
    *props = {};
    props->name = NAME;
    props->description = isa();
    props->type = GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

ggml_backend_t device_init(ggml_backend_dev_t of, const char *) {
    ggml_backend_i iface = {};
    iface.get_name = backend_name;
    iface.free = backend_free;
    iface.graph_compute = backend_compute;
    return new ggml_backend{guid(), iface, of, new Runner};
}

ggml_backend_buffer_type_t device_buffer_type(ggml_backend_dev_t) { return &buffer_type; }

// llama.cpp asks while it loads, with a weight in an empty buffer: will you have it? And again for
// every operation of a graph.
bool is_offered(const ggml_tensor * weight) {
    return weight && weight->buffer && weight->buffer->buft == &buffer_type && weight->buffer->size == 0;
}

bool supports_product(const ggml_tensor * op) {
    const ggml_tensor * w = op->src[0];
    const ggml_tensor * x = op->src[1];
    if (x->type != GGML_TYPE_F32 || x->nb[0] != sizeof(float)) return false;
    if (is_offered(w)) return accepting && kernel_for(w);
    return packed_for(w) && w->buffer && w->buffer->buft == &buffer_type;
}

bool device_supports(ggml_backend_dev_t, const ggml_tensor * op) {
    switch (op->op) {
        case GGML_OP_NONE:
        case GGML_OP_RESHAPE:
        case GGML_OP_VIEW:
        case GGML_OP_PERMUTE:
        case GGML_OP_TRANSPOSE: return true;
        case GGML_OP_MUL_MAT: return supports_product(op);
        case GGML_OP_FLASH_ATTN_EXT: return is_attention(op);
        default: return is_row_op(op) && (accepting || !is_offered(op->src[1]));
    }
}

bool device_supports_type(ggml_backend_dev_t, ggml_backend_buffer_type_t type) {
    return type == &buffer_type || ggml_backend_buft_is_host(type);
}

// ---- registration ------------------------------------------------------------------------------

const char * registry_name(ggml_backend_reg_t) { return NAME; }
size_t registry_count(ggml_backend_reg_t) { return 1; }
ggml_backend_dev_t registry_device(ggml_backend_reg_t, size_t) { return &device; }

void * registry_address(ggml_backend_reg_t, const char * name) {
    return std::strcmp(name, "ggml_backend_set_n_threads") ? nullptr : reinterpret_cast<void *>(set_threads);
}

ggml_backend_reg registry = {
    GGML_ABI_VERSION, {registry_name, registry_count, registry_device, registry_address}, nullptr};

ggml_backend_device device = {
    {device_name, device_description, device_memory, device_type, device_props, device_init, device_buffer_type,
     nullptr, nullptr, device_supports, device_supports_type, nullptr, nullptr, nullptr, nullptr},
    &registry,
    nullptr};

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED ggml_backend_reg_t ggml_backend_init() { return &registry; }

// Whether models loaded from now on get packed weights.
EXPORTED void spec_cpu_accept(bool accept) { accepting = accept; }

// The instructions that the library was built for.
EXPORTED const char * spec_cpu_isa() { return isa(); }

// Multiplies small random matrices of every format. Returns 0, or 1 and what went wrong in `message`.
EXPORTED int spec_cpu_self_test(char * message, size_t size) { return self_test(message, size) ? 0 : 1; }
