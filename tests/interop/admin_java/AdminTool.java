import java.io.*;
import java.nio.charset.StandardCharsets;
import java.security.Permission;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs many commands of the official mqadmin in one JVM, because starting one takes seconds.
 *
 *  Standard input: a line per command, its words separated by tabs, the first one the milliseconds after which a command
 *  that never ends is interrupted. The line `prepare` and the address of a name server fills the cluster (Prepare).
 *  Standard output: for each line the numbers of bytes printed to standard output and error, a line feed, and these bytes. */
public class AdminTool {
    private static final long ENDING_MS = 5_000;

    static final class Exit extends SecurityException {
    }

    static final class Commands extends MQAdminStartup {
        static void forget() {
            subCommandList.clear();
        }
    }

    public static void main(String[] a) throws Exception {
        System.setSecurityManager(new SecurityManager() {
            @Override public void checkExit(int status) {
                throw new Exit();
            }

            @Override public void checkPermission(Permission permission) {
            }
        });
        PrintStream answers = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            ByteArrayOutputStream output = new ByteArrayOutputStream(), errors = new ByteArrayOutputStream();
            System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
            if (words[0].equals("prepare")) {
                Prepare.run(words[1], System.out);
            } else {
                command(words);
            }
            byte[] printed = output.toByteArray(), complained = errors.toByteArray();
            answers.println(printed.length + " " + complained.length);
            answers.write(printed);
            answers.write(complained);
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void command(String[] words) throws InterruptedException {
        String[] command = java.util.Arrays.copyOfRange(words, 1, words.length);
        Thread thread = new Thread(() -> {
            try {
                Commands.forget(); // some commands keep a client that they have closed
                MQAdminStartup.main(command);
            } catch (Exit ended) {
                // The words were wrong, or asked for help.
            }
        });
        thread.setDaemon(true);
        thread.start();
        thread.join(Long.parseLong(words[0]));
        thread.interrupt();
        thread.join(ENDING_MS); // its complaint about that belongs to it
    }
}
