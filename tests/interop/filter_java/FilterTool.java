import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * What the reference makes of SQL92 expressions. One request per line: the expression, then names and values of the
 * properties in turn, all in base64 with blanks between them. One answer per line: "refused" if it does not compile,
 * "fault" if its evaluation fails, else what it evaluates to.
 */
public final class FilterTool {
    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        var out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            var properties = new HashMap<String, String>();
            for (int i = 1; i + 1 < words.length; i += 2) properties.put(text(words[i]), text(words[i + 1]));
            out.append(answer(text(words[0]), properties)).append('\n');
        }
        System.out.print(out);
    }

    private static String text(String word) {
        return new String(Base64.getDecoder().decode(word.equals("-") ? "" : word), StandardCharsets.UTF_8);
    }

    private static String answer(String text, Map<String, String> properties) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
        } catch (Throwable refused) {
            return "refused";
        }
        try {
            return String.valueOf(expression.evaluate(new EvaluationContext() {
                public Object get(String name) {
                    return properties.get(name);
                }

                public Map<String, Object> keyValues() {
                    return new HashMap<>(properties);
                }
            }));
        } catch (Throwable fault) {
            return "fault";
        }
    }
}
