// Are the structures of the ggml that is loaded here the ones that we were compiled for?
#pragma once

namespace spec_cpu {

// The first structure that differs, or nullptr where none does.
const char * differing_layout();

}  // namespace spec_cpu
