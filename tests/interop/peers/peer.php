<?php
/**
 * A PHP service without redrive, as the pattern is widely used: it counts x-death[0].count, republishes what failed to the retry
 * exchange, and wraps its bodies in an envelope. One command a run, one JSON object a line on stdout.
 *
 *     php peer.php declare  QUEUE PATTERN [--ttl MS]
 *     php peer.php publish  ROUTING-KEY JSON
 *     php peer.php consume  QUEUE PATTERN --attempts N [--fail] [--max-retries N] [--ttl MS] [--seconds S]
 *     php peer.php requeue  QUEUE PATTERN --count N [--seconds S]
 *
 * The broker is PEER_HOST, PEER_PORT, PEER_USER, PEER_PASSWORD, PEER_VHOST of the environment; the exchanges are PEER_EXCHANGE, and the
 * same with PEER_RETRY_SUFFIX and PEER_FAILED_SUFFIX behind it.
 */

declare(strict_types=1);

require 'PhpAmqpLib/autoload.php';

use PhpAmqpLib\Channel\AMQPChannel;
use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Exception\AMQPTimeoutException;
use PhpAmqpLib\Message\AMQPMessage;
use PhpAmqpLib\Wire\AMQPTable;

const JSON = JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE;

final class Peer
{
    private string $main;
    private string $retry;
    private string $failed;

    public function __construct(private AMQPChannel $channel, private array $options)
    {
        $this->main = getenv('PEER_EXCHANGE');
        $this->retry = $this->main . getenv('PEER_RETRY_SUFFIX');
        $this->failed = $this->main . getenv('PEER_FAILED_SUFFIX');
        foreach ([$this->main, $this->retry, $this->failed] as $exchange) {
            $this->channel->exchange_declare($exchange, 'topic', false, true, false);
        }
        $this->channel->confirm_select();
    }

    public function declare(string $queue, string $pattern): void
    {
        $arguments = new AMQPTable([
            'x-dead-letter-exchange' => $this->main,
            'x-dead-letter-routing-key' => $queue,
            'x-message-ttl' => (int) ($this->options['ttl'] ?? 30000),
        ]);
        $this->channel->queue_declare("$queue@retry", false, true, false, false, false, $arguments);
        $this->channel->queue_bind("$queue@retry", $this->retry, $queue);
        $this->channel->queue_declare($queue, false, true, false, false);
        $this->channel->queue_bind($queue, $this->main, $pattern);
        $this->channel->queue_bind($queue, $this->main, $queue);
        $this->channel->queue_declare("$queue@failed", false, true, false, false);
        $this->channel->queue_bind("$queue@failed", $this->failed, $queue);
        say(['declared' => $queue]);
    }

    public function publish(string $routingKey, string $body): void
    {
        $id = uniqid(date('YmdHis-'));
        $content = json_encode(['body' => json_decode($body, true), '__id' => $id], JSON);
        $this->send(new AMQPMessage($content, ['delivery_mode' => AMQPMessage::DELIVERY_MODE_PERSISTENT]), $this->main, $routingKey);
        say(['published' => $id]);
    }

    public function consume(string $queue, string $pattern): void
    {
        $this->declare($queue, $pattern);
        $this->each($queue, (int) $this->options['attempts'], fn (AMQPMessage $message) => $this->attempt($queue, $message));
    }

    public function requeue(string $queue, string $pattern): void
    {
        $this->declare($queue, $pattern);
        $this->each("$queue@failed", (int) $this->options['count'], function (AMQPMessage $message) use ($queue): void {
            // Only this header stays: without x-death the count begins anew.
            $message->set('application_headers', new AMQPTable(['x-orig-routing-key' => self::originalRoutingKey($message)]));
            $this->send($message, $this->main, $queue);
            say(['requeued' => self::idOf($message)]);
        });
    }

    private function attempt(string $queue, AMQPMessage $message): void
    {
        $retries = (int) (self::headersOf($message)['x-death'][0]['count'] ?? 0);
        $then = 'done';
        if (array_key_exists('fail', $this->options)) {
            $then = $retries >= (int) ($this->options['max-retries'] ?? 3) ? 'failed' : 'retry';
            $headers = $message->has('application_headers') ? $message->get('application_headers') : new AMQPTable();
            $headers->set('x-orig-routing-key', self::originalRoutingKey($message));
            $copy = new AMQPMessage($message->getBody(), ['application_headers' => $headers] + $message->get_properties());
            $this->send($copy, $then === 'failed' ? $this->failed : $this->retry, $queue);
        }
        say([
            'id' => self::idOf($message),
            'body' => json_decode($message->getBody(), true)['body'] ?? null,
            'routing_key' => self::originalRoutingKey($message),
            'retries' => $retries,
            'then' => $then,
        ]);
    }

    private function each(string $queue, int $count, callable $handle): void
    {
        $this->channel->basic_qos(0, 1, false);
        $this->channel->basic_consume($queue, '', false, false, false, false, function (AMQPMessage $message) use (&$count, $handle): void {
            $handle($message);
            $message->ack();
            if (--$count === 0) {
                $message->getChannel()->basic_cancel($message->getConsumerTag());
            }
        });
        $end = microtime(true) + (float) ($this->options['seconds'] ?? 30);
        while ($this->channel->is_consuming()) {
            $left = $end - microtime(true);
            if ($left <= 0) {
                throw new RuntimeException("$count messages of $queue did not come");
            }
            try {
                $this->channel->wait(null, false, $left);
            } catch (AMQPTimeoutException) {
            }
        }
    }

    private function send(AMQPMessage $message, string $exchange, string $routingKey): void
    {
        $this->channel->basic_publish($message, $exchange, $routingKey, true);
        $this->channel->wait_for_pending_acks_returns(10);
    }

    private static function headersOf(AMQPMessage $message): array
    {
        return $message->has('application_headers') ? $message->get('application_headers')->getNativeData() : [];
    }

    private static function originalRoutingKey(AMQPMessage $message): string
    {
        return self::headersOf($message)['x-orig-routing-key'] ?? $message->getRoutingKey();
    }

    private static function idOf(AMQPMessage $message): ?string
    {
        return json_decode($message->getBody(), true)['__id'] ?? null;
    }
}

function say(array $what): void
{
    fwrite(STDOUT, json_encode($what, JSON) . "\n");
}

[$words, $options] = [[], []];
for ($place = 1; $place < $argc; $place++) {
    if (!str_starts_with($argv[$place], '--')) {
        $words[] = $argv[$place];
    } elseif ($argv[$place] === '--fail') {
        $options['fail'] = true;
    } else {
        $options[substr($argv[$place], 2)] = $argv[++$place];
    }
}
$command = array_shift($words);
$login = array_map(fn (string $name) => getenv("PEER_$name"), ['HOST', 'PORT', 'USER', 'PASSWORD', 'VHOST']);
$connection = new AMQPStreamConnection(...$login);
(new Peer($connection->channel(), $options))->$command(...$words);
$connection->close();
