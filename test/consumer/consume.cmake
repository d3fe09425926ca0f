# Installs delta from DELTA_BINARY_DIR to a prefix beside it, then configures, builds and runs the
# consumer in each of three ways. Stops at the first failure.
set(work ${DELTA_BINARY_DIR}/consumer)
file(REMOVE_RECURSE ${work})

function(run_step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " line)
    message(FATAL_ERROR "${line}\nfailed (${code}):\n${text}")
  endif()
endfunction()

run_step(${CMAKE_COMMAND} --install ${DELTA_BINARY_DIR} --prefix ${work}/prefix)
file(STRINGS ${DELTA_SOURCE_DIR}/include/delta/version.hpp version
  REGEX "^#define DELTA_VERSION_(MAJOR|MINOR|PATCH) ")
list(TRANSFORM version REPLACE "^.* " "")
list(JOIN version "." version)

foreach(way find_package subdirectory include_path)
  run_step(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${work}/${way} -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_PREFIX_PATH=${work}/prefix -DCONSUME=${way}
    -DDELTA_SOURCE_DIR=${DELTA_SOURCE_DIR} -DDELTA_VERSION=${version}
    -DENGINE=${ENGINE})
  run_step(${CMAKE_COMMAND} --build ${work}/${way})
  run_step(${work}/${way}/consumer)
  if(way STREQUAL "find_package" AND ENGINE)
    run_step(${work}/${way}/by_name paper)
    foreach(policy adaptive dtr)
      run_step(${work}/${way}/framework ${policy})
    endforeach()
    # In C, without CMake: as docs/c.md says.
    find_program(pkg_config pkg-config)
    file(GLOB_RECURSE pc ${work}/prefix/delta-engine.pc)
    get_filename_component(pc_folder "${pc}" DIRECTORY)
    if(pkg_config)
      run_step(sh -c "PKG_CONFIG_PATH='${pc_folder}' ${pkg_config} --print-errors --exact-version=${version} delta-engine && \
        cc -std=c99 '${DELTA_SOURCE_DIR}/examples/c_training.c' -o '${work}/c_training' \
        $(PKG_CONFIG_PATH='${pc_folder}' ${pkg_config} --cflags --libs delta-engine)")
      run_step(${work}/c_training)
    else()
      message(STATUS "pkg-config is not here: what it says was not tried")
    endif()
  endif()
  message(STATUS "consumed by ${way}: builds and runs")
endforeach()
