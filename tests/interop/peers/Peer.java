import com.rabbitmq.client.AMQP.BasicProperties;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * A Java service without redrive, as the pattern is widely used: it counts x-death[0].count and republishes what failed to the retry
 * exchange; its bodies are raw. The same commands, options and environment as peer.php.
 */
public final class Peer {
    private final Channel channel;
    private final Map<String, String> options;
    private final String main = System.getenv("PEER_EXCHANGE");
    private final String retry = main + System.getenv("PEER_RETRY_SUFFIX");
    private final String failed = main + System.getenv("PEER_FAILED_SUFFIX");

    private Peer(Channel channel, Map<String, String> options) throws IOException {
        this.channel = channel;
        this.options = options;
        for (String exchange : List.of(main, retry, failed)) {
            channel.exchangeDeclare(exchange, "topic", true);
        }
        channel.confirmSelect();
    }

    public static void main(String[] words) throws Exception {
        List<String> arguments = new ArrayList<>();
        Map<String, String> options = new HashMap<>();
        for (int place = 0; place < words.length; place++) {
            if (!words[place].startsWith("--")) {
                arguments.add(words[place]);
            } else if (words[place].equals("--fail")) {
                options.put("fail", "");
            } else {
                options.put(words[place].substring(2), words[++place]);
            }
        }
        ConnectionFactory factory = new ConnectionFactory();
        factory.setHost(System.getenv("PEER_HOST"));
        factory.setPort(Integer.parseInt(System.getenv("PEER_PORT")));
        factory.setUsername(System.getenv("PEER_USER"));
        factory.setPassword(System.getenv("PEER_PASSWORD"));
        factory.setVirtualHost(System.getenv("PEER_VHOST"));
        try (Connection connection = factory.newConnection()) {
            Peer peer = new Peer(connection.createChannel(), options);
            switch (arguments.get(0)) {
                case "declare" -> peer.declare(arguments.get(1), arguments.get(2));
                case "publish" -> peer.publish(arguments.get(1), arguments.get(2));
                case "consume" -> peer.consume(arguments.get(1), arguments.get(2));
                case "requeue" -> peer.requeue(arguments.get(1), arguments.get(2));
                default -> throw new IllegalArgumentException("no command: " + arguments.get(0));
            }
        }
    }

    private void declare(String queue, String pattern) throws IOException {
        Map<String, Object> arguments = new HashMap<>();
        arguments.put("x-dead-letter-exchange", main);
        arguments.put("x-dead-letter-routing-key", queue);
        arguments.put("x-message-ttl", Integer.parseInt(options.getOrDefault("ttl", "30000")));
        channel.queueDeclare(queue, true, false, false, null);
        channel.queueDeclare(queue + "@failed", true, false, false, null);
        channel.queueDeclare(queue + "@retry", true, false, false, arguments);
        channel.queueBind(queue, main, pattern);
        channel.queueBind(queue, main, queue);
        channel.queueBind(queue + "@failed", failed, queue);
        channel.queueBind(queue + "@retry", retry, queue);
        say("declared", queue);
    }

    private void publish(String routingKey, String body) throws Exception {
        send(main, routingKey, new BasicProperties.Builder().deliveryMode(2).build(), body.getBytes(StandardCharsets.UTF_8));
        say("published", routingKey);
    }

    private void consume(String queue, String pattern) throws Exception {
        declare(queue, pattern);
        each(queue, Integer.parseInt(options.get("attempts")), (key, properties, body) -> attempt(queue, key, properties, body));
    }

    private void requeue(String queue, String pattern) throws Exception {
        declare(queue, pattern);
        each(queue + "@failed", Integer.parseInt(options.get("count")), (key, properties, body) -> {
            // Only this header stays: without x-death the count begins anew.
            send(main, queue, with(properties, Map.of("x-orig-routing-key", originalRoutingKey(properties, key))), body);
            say("requeued", new String(body, StandardCharsets.UTF_8));
        });
    }

    private void attempt(String queue, String key, BasicProperties properties, byte[] body) throws Exception {
        long retries = retriesOf(properties);
        String then = "done";
        if (options.containsKey("fail")) {
            boolean last = retries >= Long.parseLong(options.getOrDefault("max-retries", "3"));
            then = last ? "failed" : "retry";
            Map<String, Object> headers = properties.getHeaders() == null ? new HashMap<>() : new HashMap<>(properties.getHeaders());
            headers.put("x-orig-routing-key", originalRoutingKey(properties, key));
            send(last ? failed : retry, queue, with(properties, headers), body);
        }
        say("body", new String(body, StandardCharsets.UTF_8), "routing_key", originalRoutingKey(properties, key),
            "retries", retries, "then", then);
    }

    private interface Handler {
        void handle(String routingKey, BasicProperties properties, byte[] body) throws Exception;
    }

    private void each(String queue, int count, Handler handler) throws Exception {
        CountDownLatch left = new CountDownLatch(count);
        List<Exception> problems = new ArrayList<>();
        channel.basicQos(1);
        // A publish with a confirm may not wait on the thread that delivers.
        String tag = channel.basicConsume(queue, false, new DefaultConsumer(channel) {
            @Override
            public void handleDelivery(String tag, Envelope envelope, BasicProperties properties, byte[] body) {
                if (left.getCount() == 0) {
                    return;
                }
                try {
                    handler.handle(envelope.getRoutingKey(), properties, body);
                    channel.basicAck(envelope.getDeliveryTag(), false);
                } catch (Exception problem) {
                    problems.add(problem);
                }
                left.countDown();
            }
        });
        if (!left.await(Long.parseLong(options.getOrDefault("seconds", "30")), TimeUnit.SECONDS)) {
            throw new IllegalStateException(left.getCount() + " messages of " + queue + " did not come");
        }
        channel.basicCancel(tag);
        if (!problems.isEmpty()) {
            throw problems.get(0);
        }
    }

    private void send(String exchange, String routingKey, BasicProperties properties, byte[] body) throws Exception {
        channel.basicPublish(exchange, routingKey, true, properties, body);
        channel.waitForConfirmsOrDie(10_000);
    }

    private static BasicProperties with(BasicProperties properties, Map<String, Object> headers) {
        return properties.builder().headers(headers).build();
    }

    private static String originalRoutingKey(BasicProperties properties, String delivered) {
        Map<String, Object> headers = properties.getHeaders();
        Object original = headers == null ? null : headers.get("x-orig-routing-key");
        return original == null ? delivered : original.toString();
    }

    private static long retriesOf(BasicProperties properties) {
        Map<String, Object> headers = properties.getHeaders();
        if (headers == null || !(headers.get("x-death") instanceof List<?> deaths) || deaths.isEmpty()) {
            return 0;
        }
        return ((Map<?, ?>) deaths.get(0)).get("count") instanceof Number count ? count.longValue() : 0;
    }

    /** Prints names and values as one JSON object. */
    private static void say(Object... pairs) {
        StringBuilder line = new StringBuilder("{");
        for (int place = 0; place < pairs.length; place += 2) {
            line.append(place == 0 ? "" : ", ").append(quoted(pairs[place].toString())).append(": ");
            line.append(pairs[place + 1] instanceof Number number ? number.toString() : quoted(pairs[place + 1].toString()));
        }
        System.out.println(line.append('}'));
        System.out.flush();
    }

    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char character : text.toCharArray()) {
            if (character == '"' || character == '\\') {
                quoted.append('\\').append(character);
            } else if (character < ' ') {
                quoted.append(String.format("\\u%04x", (int) character));
            } else {
                quoted.append(character);
            }
        }
        return quoted.append('"').toString();
    }
}
