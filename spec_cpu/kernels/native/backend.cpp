// The kernels as a ggml backend of type ACCEL: llama.cpp offers it every weight before its own CPU
// backend, and it takes those it has a kernel for, repacked as they are loaded.
//
// Its buffers hold a model's packed weights, and the results that its operations leave in a graph.
// They are host memory, so the CPU backend reads and writes the latter in place. It could read packed
// weights as well, and would not understand them. llama.cpp puts a weight here for the one operation
// that it asked about; should it then want another one, every pass of that model fails and says so.
//
// What belongs to weights elsewhere stays there: a model that was loaded without the kernels is
// computed as if they did not exist.
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "attention.h"
#include "ggml_abi.h"
#include "graph.h"
#include "layouts.h"
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

struct Memory {
    void * start;
    std::atomic<ggml_op> refused{GGML_OP_NONE};  // asked for of packed weights in here
};

Memory & memory_of(ggml_backend_buffer_t buffer) { return *static_cast<Memory *>(buffer->context); }

void buffer_free(ggml_backend_buffer_t buffer) {
    std::free(memory_of(buffer).start);
    delete &memory_of(buffer);
}

void * buffer_base(ggml_backend_buffer_t buffer) { return memory_of(buffer).start; }
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

void buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) { std::memset(buffer_base(buffer), value, buffer->size); }

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
    return ggml_backend_buffer_init(type, BUFFER, new Memory{memory}, size);
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

// The tensor whose memory it is.
const ggml_tensor * owner(const ggml_tensor * t) { return t->view_src ? t->view_src : t; }

bool is_held(const ggml_tensor * t) { return owner(t)->buffer && owner(t)->buffer->buft == &buffer_type; }
bool is_packed(const ggml_tensor * t) { return is_held(t) && packed_for(owner(t)); }

// ---- backend -----------------------------------------------------------------------------------

Runner & runner(ggml_backend_t backend) { return *static_cast<Runner *>(backend->context); }

const char * backend_name(ggml_backend_t) { return NAME; }

void backend_free(ggml_backend_t backend) {
    delete &runner(backend);
    delete backend;
}

// The operation that was refused on weights that the graph works with.
ggml_op refused_in(ggml_cgraph * graph) {
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++)
        for (const ggml_tensor * operand : ggml_graph_node(graph, i)->src) {
            if (!operand || !is_packed(operand)) continue;
            const ggml_op refused = memory_of(owner(operand)->buffer).refused;
            if (refused != GGML_OP_NONE) return refused;
        }
    return GGML_OP_NONE;
}

ggml_status backend_compute(ggml_backend_t backend, ggml_cgraph * graph) {
    const ggml_op refused = refused_in(graph);
    if (refused != GGML_OP_NONE) {
        ggml_log_internal(
            GGML_LOG_LEVEL_ERROR, "%s: this model needs %s of weights that the kernels packed: use --kernels off\n",
            NAME, ggml_op_name(refused));
        return GGML_STATUS_FAILED;
    }
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
    return packed_for(w) && is_packed(w);
}

// Rows are ours beside weights that are ours, or none.
bool supports_rows(const ggml_tensor * op) {
    if (!is_row_op(op)) return false;
    for (const ggml_tensor * operand : {op->src[0], op->src[1]}) {
        if (!operand || !owner(operand)->buffer) continue;
        if (is_offered(operand) && !accepting) return false;
        if (owner(operand)->buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS && !is_held(operand)) return false;
    }
    return true;
}

bool supports(const ggml_tensor * op) {
    switch (op->op) {
        case GGML_OP_NONE:
        case GGML_OP_RESHAPE:
        case GGML_OP_VIEW:
        case GGML_OP_PERMUTE:
        case GGML_OP_TRANSPOSE: return !owner(op)->buffer || is_held(op);
        case GGML_OP_MUL_MAT: return supports_product(op);
        case GGML_OP_FLASH_ATTN_EXT: return is_attention(op);
        default: return supports_rows(op);
    }
}

// Packed weights that it reads in another way than by a product.
const ggml_tensor * misread(const ggml_tensor * op) {
    for (const ggml_tensor * operand : op->src)
        if (operand && is_packed(operand)) {
            const bool product = op->op == GGML_OP_MUL_MAT && operand == op->src[0] && supports_product(op);
            if (!product) return owner(operand);
        }
    return nullptr;
}

// llama.cpp asks here before it asks its CPU backend, which would take everything. What must not
// happen at all is ours, then: it fails when it is run, as does all else with the same weights.
bool device_supports(ggml_backend_dev_t, const ggml_tensor * op) {
    const ggml_tensor * packed = misread(op);
    if (packed) memory_of(packed->buffer).refused = op->op;
    return packed || supports(op);
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

// Whether ggml's structures are what ggml_abi.h takes them for. Returns 0, or 1 and the name of the
// first that is not in `message`. To be asked before the backend is registered.
EXPORTED int spec_cpu_check_layouts(char * message, size_t size) {
    const char * differs = differing_layout();
    if (differs) std::snprintf(message, size, "%s", differs);
    return differs != nullptr;
}

// Whether models loaded from now on get packed weights.
EXPORTED void spec_cpu_accept(bool accept) { accepting = accept; }

// The instructions that the library was built for.
EXPORTED const char * spec_cpu_isa() { return isa(); }

// The name of a format that there is a kernel for, by number; nullptr after the last.
EXPORTED const char * spec_cpu_format(int i) {
    const ggml_type type = all_kernels()[i].type;
    return type == GGML_TYPE_COUNT ? nullptr : ggml_type_name(type);
}

// Multiplies small random matrices of that format. Returns 0; or 1, and what went wrong in `message`:
// matrices of the format are left to stock ggml then.
EXPORTED int spec_cpu_self_test(int i, char * message, size_t size) {
    const Kernel & kernel = all_kernels()[i];
    if (self_test(kernel, message, size)) return 0;
    decline(kernel.type);
    return 1;
}
