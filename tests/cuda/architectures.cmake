# All kernels for all architectures that the device is meant for, in a build folder of its own:
# cmake -DSOURCE=… -DBUILD=… -DGENERATOR=… -P architectures.cmake
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${BUILD} -G ${GENERATOR} -DLILY_CUDA=ON -DLILY_TESTS=OFF
  "-DLILY_CUDA_ARCHS=80;86;89;100;103;120;121" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${BUILD} --target lily_cuda_kernels COMMAND_ERROR_IS_FATAL ANY)
