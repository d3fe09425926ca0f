# Without an observer the manager is the machine code that it would be if nothing were ever told:
# compiles a manager as it is, and from headers out of which every telling statement was cut, and
# compares the size of the code to the byte. (Function for function the order may differ.)
#   cmake -DCOMPILER=... -DSIZE=... -DINCLUDE=... -DSOURCE=... -DFOLDER=... -P absent.cmake
cmake_policy(VERSION 3.23)
file(REMOVE_RECURSE ${FOLDER})
file(COPY ${INCLUDE}/ DESTINATION ${FOLDER}/silent)

set(cut 0)
foreach(header reclaimer idle_work operator_run operator_context kernel_launch)
  set(file ${FOLDER}/silent/delta/detail/runtime/${header}.hpp)
  file(READ ${file} text)
  foreach(statement "const auto draft = [^;]*;"
                    "((frame_\\.)?reclaimer_?(->|\\.)events\\(\\)|r.events\\(\\)|events_)\\.(work|copy|flush|tell)\\([^;]*;")
    string(REGEX REPLACE "${statement}" "/*cut*/" text "${text}")
  endforeach()
  string(REPLACE "return /*cut*/" "return; /*cut*/" text "${text}")
  string(REGEX MATCHALL "/\\*cut\\*/" found "${text}")
  list(LENGTH found count)
  math(EXPR cut "${cut} + ${count}")
  file(WRITE ${file} "${text}")
endforeach()
if(cut LESS 10)
  message(FATAL_ERROR "only ${cut} telling statements were found: this test compares nothing")
endif()

function(code_size result include)
  set(object ${FOLDER}/${result}.o)
  execute_process(COMMAND ${COMPILER} -std=c++20 -O2 -DNDEBUG ${ARGN} -I${include} -c ${SOURCE}
                          -o ${object} COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${SIZE} ${object} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCH "\n *([0-9]+)" unused "${text}")
  set(${result} ${CMAKE_MATCH_1} PARENT_SCOPE)
endfunction()

code_size(silent ${FOLDER}/silent)
code_size(absent ${INCLUDE})
code_size(present ${INCLUDE} -DSOMEBODY_LISTENS)
message(STATUS "code: ${silent} bytes without telling, ${absent} without an observer, "
               "${present} with one")
if(NOT silent EQUAL absent)
  message(FATAL_ERROR "an absent observer costs code")
endif()
if(NOT present GREATER absent)
  message(FATAL_ERROR "an observer costs nothing: this test would not see it if an absent one did")
endif()
