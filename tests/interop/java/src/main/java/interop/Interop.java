package interop;

/**
 * One official Java client, driven by arguments: send, push, litepull, request, reply, transaction, allocate or attempts.
 *
 * Prints one JSON object per line. A consumer runs until its standard input ends, then leaves its group in good order.
 */
public final class Interop {
    private Interop() {
    }

    public static void main(String[] words) throws Exception {
        Arguments arguments = new Arguments(words);
        switch (arguments.command) {
            case "send" -> Send.run(arguments);
            case "push" -> Push.run(arguments);
            case "litepull" -> LitePull.run(arguments);
            case "request" -> RequestReply.request(arguments);
            case "reply" -> RequestReply.reply(arguments);
            case "transaction" -> Transactions.run(arguments);
            case "allocate" -> Allocate.run(arguments);
            case "attempts" -> Attempts.run(arguments);
            default -> throw new IllegalArgumentException("no such command: " + arguments.command);
        }
        System.exit(0); // threads of the client may outlive it; everything we wait for has ended here
    }
}
