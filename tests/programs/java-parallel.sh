# about: javac and jlink with the Parallel collector
# version: java -version
# needs: java javac jlink
. "$TOP/tests/programs/java" -XX:+UseParallelGC
