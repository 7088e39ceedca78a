<?php
/**
 * A service on php-amqplib, which rejects what it can't handle into its dead-letter queue.
 *
 *     php dead_letters.php fail|succeed
 *
 * The broker is PEER_HOST, PEER_PORT, PEER_USER, PEER_PASSWORD, PEER_VHOST of the environment; the queues are PEER_QUEUE and
 * PEER_DEAD_LETTERS, the number of messages is PEER_COUNT.
 */

declare(strict_types=1);

require 'PhpAmqpLib/autoload.php';

use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Message\AMQPMessage;
use PhpAmqpLib\Wire\AMQPTable;

const CAUSES = ['item', 'amount', 'bank'];

$fails = $argv[1] === 'fail';
$queue = getenv('PEER_QUEUE');
$deadLetters = getenv('PEER_DEAD_LETTERS');
$count = (int) getenv('PEER_COUNT');
$login = array_map(fn (string $name) => getenv("PEER_$name"), ['HOST', 'PORT', 'USER', 'PASSWORD', 'VHOST']);
$connection = new AMQPStreamConnection(...$login);
$channel = $connection->channel();
$arguments = new AMQPTable(['x-dead-letter-exchange' => '', 'x-dead-letter-routing-key' => $deadLetters]);
$channel->exchange_declare('php.orders', 'topic', false, true, false);
$channel->queue_declare($deadLetters, false, true, false, false);
$channel->queue_declare($queue, false, true, false, false, false, $arguments);
$channel->queue_bind($queue, 'php.orders', 'order.#');
if ($fails) {
    for ($number = 0; $number < $count; $number++) {
        $order = ['id' => "order-$number", 'number' => $number, 'cause' => CAUSES[$number % count(CAUSES)]];
        $properties = ['delivery_mode' => AMQPMessage::DELIVERY_MODE_PERSISTENT, 'content_type' => 'application/json'];
        $channel->basic_publish(new AMQPMessage(json_encode($order), $properties), 'php.orders', 'order.placed');
    }
}
$channel->basic_qos(0, 100, false);
$channel->basic_consume($queue, '', false, false, false, false, function (AMQPMessage $message) use (&$count, $fails): void {
    if ($fails) {
        $message->reject(false);
    } else {
        fwrite(STDOUT, json_decode($message->getBody(), true)['id'] . "\n");
        $message->ack();
    }
    if (--$count === 0) {
        $message->getChannel()->basic_cancel($message->getConsumerTag());
    }
});
while ($channel->is_consuming()) {
    $channel->wait(null, false, 60);
}
$connection->close();
