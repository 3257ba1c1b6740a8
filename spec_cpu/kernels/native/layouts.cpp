#include "layouts.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "ggml_abi.h"

namespace spec_cpu {

namespace {

// A structure whose every word is the address of a function, and each function says which word it
// was called through. ggml's getters, called on it, thus tell where they look, and wherever they
// look they find something that can be called.
constexpr int WORDS = 48;
int called;

template <int I> intptr_t word() {
    called = I;
    return I;
}

template <int... I> std::array<intptr_t (*)(), WORDS> words(std::integer_sequence<int, I...>) { return {word<I>...}; }

std::array<intptr_t (*)(), WORDS> probe = words(std::make_integer_sequence<int, WORDS>());

struct AnyStructure {
    template <class T> operator T *() const { return reinterpret_cast<T *>(probe.data()); }
};
constexpr AnyStructure any;

// What is found in a field that is no function.
template <class T> bool is_word(T found, size_t offset) {
    return std::memcmp(&found, reinterpret_cast<const char *>(probe.data()) + offset, sizeof found) == 0;
}

#define CALLS(structure, member, call) \
    called = -1;                       \
    (void)(call);                      \
    if (called * sizeof(void *) != offsetof(structure, iface.member)) return #structure;

#define READS(structure, member, getter) \
    if (!is_word(getter, offsetof(structure, member))) return #structure;

const char * differing_buffer(const ggml_tensor * t) {
    const ggml_backend_buffer_type_t type = any;
    CALLS(ggml_backend_buffer_type, get_name, ggml_backend_buft_name(type))
    CALLS(ggml_backend_buffer_type, alloc_buffer, ggml_backend_buft_alloc_buffer(type, 1))
    CALLS(ggml_backend_buffer_type, get_alignment, ggml_backend_buft_get_alignment(type))
    CALLS(ggml_backend_buffer_type, get_max_size, ggml_backend_buft_get_max_size(type))
    CALLS(ggml_backend_buffer_type, get_alloc_size, ggml_backend_buft_get_alloc_size(type, t))
    CALLS(ggml_backend_buffer_type, is_host, ggml_backend_buft_is_host(type))
    READS(ggml_backend_buffer_type, device, ggml_backend_buft_get_device(type))
    const ggml_backend_buffer_t buffer = any;
    CALLS(ggml_backend_buffer, get_base, ggml_backend_buffer_get_base(buffer))
    CALLS(ggml_backend_buffer, clear, ggml_backend_buffer_clear(buffer, 0))
    CALLS(ggml_backend_buffer, reset, ggml_backend_buffer_reset(buffer))
    READS(ggml_backend_buffer, buft, ggml_backend_buffer_get_type(buffer))
    READS(ggml_backend_buffer, size, ggml_backend_buffer_get_size(buffer))
    READS(ggml_backend_buffer, usage, ggml_backend_buffer_get_usage(buffer))
    return nullptr;
}

// A tensor that lies in the probe as its buffer.
const char * differing_buffer_of_tensor(ggml_tensor * t) {
    float value = 0;
    t->data = &value;
    t->buffer = any;
    CALLS(ggml_backend_buffer, init_tensor, ggml_backend_buffer_init_tensor(any, t))
    CALLS(ggml_backend_buffer, memset_tensor, ggml_backend_tensor_memset(t, 0, 0, sizeof value))
    CALLS(ggml_backend_buffer, set_tensor, ggml_backend_tensor_set(t, &value, 0, sizeof value))
    CALLS(ggml_backend_buffer, get_tensor, ggml_backend_tensor_get(t, &value, 0, sizeof value))
    t->buffer = nullptr;
    return nullptr;
}

const char * differing_backend() {
    const ggml_backend_t backend = any;
    CALLS(ggml_backend, get_name, ggml_backend_name(backend))
    CALLS(ggml_backend, synchronize, ggml_backend_synchronize(backend))
    CALLS(ggml_backend, graph_compute, ggml_backend_graph_compute_async(backend, nullptr))
    READS(ggml_backend, guid, ggml_backend_guid(backend))
    READS(ggml_backend, device, ggml_backend_get_device(backend))
    return nullptr;
}

const char * differing_device(const ggml_tensor * t) {
    const ggml_backend_dev_t device = any;
    ggml_backend_dev_props props;
    size_t free, total;
    CALLS(ggml_backend_device, get_name, ggml_backend_dev_name(device))
    CALLS(ggml_backend_device, get_description, ggml_backend_dev_description(device))
    CALLS(ggml_backend_device, get_memory, ggml_backend_dev_memory(device, &free, &total))
    CALLS(ggml_backend_device, get_type, ggml_backend_dev_type(device))
    CALLS(ggml_backend_device, get_props, ggml_backend_dev_get_props(device, &props))
    CALLS(ggml_backend_device, init_backend, ggml_backend_dev_init(device, nullptr))
    CALLS(ggml_backend_device, get_buffer_type, ggml_backend_dev_buffer_type(device))
    CALLS(ggml_backend_device, get_host_buffer_type, ggml_backend_dev_host_buffer_type(device))
    CALLS(ggml_backend_device, supports_op, ggml_backend_dev_supports_op(device, t))
    CALLS(ggml_backend_device, supports_buft, ggml_backend_dev_supports_buft(device, any))
    CALLS(ggml_backend_device, offload_op, ggml_backend_dev_offload_op(device, t))
    READS(ggml_backend_device, reg, ggml_backend_dev_backend_reg(device))
    const ggml_backend_reg_t registry = any;
    CALLS(ggml_backend_reg, get_name, ggml_backend_reg_name(registry))
    CALLS(ggml_backend_reg, get_device_count, ggml_backend_reg_dev_count(registry))
    CALLS(ggml_backend_reg, get_device, ggml_backend_reg_dev_get(registry, 0))
    CALLS(ggml_backend_reg, get_proc_address, ggml_backend_reg_get_proc_address(registry, ""))
    return nullptr;
}

// ggml's own header declares these; it may not be that of the library.
const char * differing_tensor(ggml_context * context) {
    ggml_tensor * a = ggml_new_tensor_4d(context, GGML_TYPE_F16, 5, 4, 3, 2);
    const bool shaped = a->type == GGML_TYPE_F16 && a->ne[0] == 5 && a->ne[3] == 2 && a->nb[0] == 2 && a->nb[3] == 120;
    ggml_tensor * view = ggml_view_1d(context, a, 1, 2);
    const bool viewed = view->op == GGML_OP_VIEW && view->view_src == a && view->view_offs == 2 && !view->extra;
    ggml_tensor * norm = ggml_rms_norm(context, ggml_new_tensor_1d(context, GGML_TYPE_F32, 1), 0.5f);
    const float epsilon = 0.5f;
    const bool has_parameters = std::memcmp(norm->op_params, &epsilon, sizeof epsilon) == 0;
    ggml_tensor * product = ggml_mul_mat(context, a, a);
    const bool has_sources = product->src[0] == a && product->src[1] == a && !product->src[2];
    constexpr size_t OBJECT = 32;  // what a context of ggml's keeps beside each tensor
    const bool sized = ggml_get_name(a) == a->name && ggml_tensor_overhead() == sizeof(ggml_tensor) + OBJECT;
    return shaped && viewed && has_parameters && has_sources && sized ? nullptr : "ggml_tensor";
}

const char * differing_operation() {
    const std::pair<ggml_op, const char *> operations[] = {
        {GGML_OP_NONE, "NONE"},       {GGML_OP_ADD, "ADD"},         {GGML_OP_MUL, "MUL"},
        {GGML_OP_GLU, "GLU"},         {GGML_OP_MUL_MAT, "MUL_MAT"}, {GGML_OP_RMS_NORM, "RMS_NORM"},
        {GGML_OP_RESHAPE, "RESHAPE"}, {GGML_OP_VIEW, "VIEW"},       {GGML_OP_PERMUTE, "PERMUTE"},
        {GGML_OP_TRANSPOSE, "TRANSPOSE"}, {GGML_OP_FLASH_ATTN_EXT, "FLASH_ATTN_EXT"},
    };
    for (const auto & [op, name] : operations)
        if (std::strcmp(ggml_op_name(op), name)) return "ggml_op";
    return std::strcmp(ggml_glu_op_name(GGML_GLU_OP_SWIGLU), "SWIGLU") ? "ggml_glu_op" : nullptr;
}

}  // namespace

const char * differing_layout() {
    const std::unique_ptr<ggml_context, void (*)(ggml_context *)> context(
        ggml_init({8 * ggml_tensor_overhead(), nullptr, true}), ggml_free);
    if (const char * differs = differing_operation()) return differs;
    if (const char * differs = differing_tensor(context.get())) return differs;
    ggml_tensor * number = ggml_new_tensor_1d(context.get(), GGML_TYPE_F32, 1);
    if (const char * differs = differing_buffer(number)) return differs;
    if (const char * differs = differing_buffer_of_tensor(number)) return differs;
    if (const char * differs = differing_backend()) return differs;
    return differing_device(number);
}

}  // namespace spec_cpu
