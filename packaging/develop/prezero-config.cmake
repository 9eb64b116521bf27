# find_package(prezero) brings the target prezero::prezero: the library, and the headers prezero.h and prezero.hpp.
get_filename_component(PREZERO_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET prezero::prezero)
  add_library(prezero::prezero SHARED IMPORTED)
  set_target_properties(prezero::prezero PROPERTIES
    IMPORTED_LOCATION "${PREZERO_PREFIX}/lib/prezero/libprezero.so"
    IMPORTED_SONAME "libprezero.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${PREZERO_PREFIX}/include")
endif()
unset(PREZERO_PREFIX)
