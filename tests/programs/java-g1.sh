# about: javac and jlink with the G1 collector
# version: java -version
# needs: java javac jlink
. "$TOP/tests/programs/java" -XX:+UseG1GC
