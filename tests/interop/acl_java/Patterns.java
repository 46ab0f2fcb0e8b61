import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.acl.plain.PlainAccessResource;
import org.apache.rocketmq.acl.plain.RemoteAddressStrategy;
import org.apache.rocketmq.acl.plain.RemoteAddressStrategyFactory;

/** Reads lines of a pattern and addresses, separated by tabs, and says of each address whether the pattern names it. */
public class Patterns {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream output = new PrintStream(System.out, false, "UTF-8");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            output.println(answer(line.split("\t", -1)));
        }
        output.flush();
    }

    /** 1 and 0 for each address, E where the official broker fails; or the class and the text of the refusal. */
    private static String answer(String[] words) {
        RemoteAddressStrategy strategy;
        try {
            strategy = new RemoteAddressStrategyFactory().getRemoteAddressStrategy(words[0]);
        } catch (Exception refusal) {
            return refusal.getClass().getSimpleName() + "\t" + refusal.getMessage();
        }
        StringBuilder found = new StringBuilder();
        for (int i = 1; i < words.length; i++) {
            PlainAccessResource peer = new PlainAccessResource();
            peer.setWhiteRemoteAddress(words[i]);
            try {
                found.append(strategy.match(peer) ? '1' : '0');
            } catch (Exception failure) {
                found.append('E');
            }
        }
        return found.toString();
    }
}
