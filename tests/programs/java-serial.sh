# about: javac and jlink with the Serial collector
# scale: long
# version: java -version
# needs: java javac jlink
. "$TOP/tests/programs/java" -XX:+UseSerialGC
