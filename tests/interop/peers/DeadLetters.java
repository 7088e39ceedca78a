import com.rabbitmq.client.AMQP.BasicProperties;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DeliverCallback;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A service on RabbitMQ's client for Java, which rejects what it can't handle into its dead-letter queue. */
public final class DeadLetters {
    private static final String[] CAUSES = {"item", "amount", "bank"};
    private static final Pattern ID = Pattern.compile("\"id\": *\"([^\"]*)\"");

    public static void main(String[] words) throws Exception {
        boolean fails = words[0].equals("fail");
        String queue = System.getenv("PEER_QUEUE");
        String deadLetters = System.getenv("PEER_DEAD_LETTERS");
        int count = Integer.parseInt(System.getenv("PEER_COUNT"));
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(System.getenv("PEER_URL"));
        try (Connection connection = factory.newConnection(); Channel channel = connection.createChannel()) {
            channel.exchangeDeclare("java.orders", "topic", true);
            channel.queueDeclare(deadLetters, true, false, false, null);
            channel.queueDeclare(queue, true, false, false,
                Map.of("x-dead-letter-exchange", "", "x-dead-letter-routing-key", deadLetters));
            channel.queueBind(queue, "java.orders", "order.*");
            if (fails) {
                for (int number = 0; number < count; number++) {
                    String body = String.format("{\"id\": \"order-%d\", \"number\": %d, \"cause\": \"%s\"}",
                        number, number, CAUSES[number % CAUSES.length]);
                    BasicProperties properties = new BasicProperties.Builder().deliveryMode(2).contentType("application/json").build();
                    channel.basicPublish("java.orders", "order.placed", properties, body.getBytes(StandardCharsets.UTF_8));
                }
            }
            CountDownLatch left = new CountDownLatch(count);
            channel.basicQos(100);
            DeliverCallback onMessage = (tag, delivery) -> {
                long number = delivery.getEnvelope().getDeliveryTag();
                if (fails) {
                    channel.basicReject(number, false);
                } else {
                    Matcher found = ID.matcher(new String(delivery.getBody(), StandardCharsets.UTF_8));
                    System.out.println(found.find() ? found.group(1) : "no id");
                    channel.basicAck(number, false);
                }
                left.countDown();
            };
            channel.basicConsume(queue, false, onMessage, tag -> { });
            if (!left.await(60, TimeUnit.SECONDS)) {
                throw new IllegalStateException(left.getCount() + " messages of " + queue + " did not come");
            }
        }
        System.out.flush();
    }
}
