/**
 * A JVM whose heap is a lease of prezerod: it starts with its memory there, and zero.
 *
 * Run: prezero claim 256M --wait 60 --preload -- java -XX:AllocateHeapAt=/tmp -XX:+UseSerialGC -Xms256m -Xmx256m examples/Start.java
 */
import java.lang.management.ManagementFactory;

public class Start {
    public static void main(String[] arguments) {
        long[] table = new long[8 << 20];
        for (int each = 0; each < table.length; each += 512) {
            if (table[each] != 0) throw new IllegalStateException("not zero");
        }
        long ms = System.currentTimeMillis() - ManagementFactory.getRuntimeMXBean().getStartTime();
        System.out.println("a heap of " + (Runtime.getRuntime().maxMemory() >> 20) + " MiB, ready after " + ms + " ms");
    }
}
