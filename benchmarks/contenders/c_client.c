/* Consumes COUNT messages with librabbitmq, acks each, and prints how many different ones there were,
 * the seconds from the first to the last ack, and the seconds of processor meanwhile.
 *
 * c_client HOST PORT VIRTUAL-HOST USER PASSWORD QUEUE PREFETCH COUNT
 */
#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { ID_DIGITS = 16, FRAME_MAX = 131072, CHANNEL = 1 };

static double wall(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static double processor(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec +
           (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void check(amqp_rpc_reply_t reply, const char *what) {
    if (reply.reply_type != AMQP_RESPONSE_NORMAL) {
        fprintf(stderr, "%s failed (%d, %d)\n", what, reply.reply_type, reply.library_error);
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 9) {
        fputs("c_client HOST PORT VIRTUAL-HOST USER PASSWORD QUEUE PREFETCH COUNT\n", stderr);
        return 2;
    }
    long count = atol(argv[8]), distinct = 0;
    char *seen = calloc(count, 1);
    amqp_connection_state_t connection = amqp_new_connection();
    amqp_socket_t *socket = amqp_tcp_socket_new(connection);
    if (!seen || !socket || amqp_socket_open(socket, argv[1], atoi(argv[2]))) {
        fputs("no connection\n", stderr);
        return 1;
    }
    check(amqp_login(connection, argv[3], 0, FRAME_MAX, 60, AMQP_SASL_METHOD_PLAIN, argv[4],
                     argv[5]),
          "login");
    amqp_channel_open(connection, CHANNEL);
    check(amqp_get_rpc_reply(connection), "opening a channel");
    amqp_basic_qos(connection, CHANNEL, 0, atoi(argv[7]), 0);
    check(amqp_get_rpc_reply(connection), "prefetch");
    amqp_basic_consume_ok_t *consuming = amqp_basic_consume(
        connection, CHANNEL, amqp_cstring_bytes(argv[6]), amqp_empty_bytes, 0, 0, 0,
        amqp_empty_table);
    check(amqp_get_rpc_reply(connection), "consuming");
    amqp_bytes_t tag = amqp_bytes_malloc_dup(consuming->consumer_tag);

    double began = 0, began_processor = 0;
    for (long done = 0; done < count; done++) {
        amqp_envelope_t envelope;
        amqp_maybe_release_buffers(connection);
        check(amqp_consume_message(connection, &envelope, NULL, 0), "a message");
        if (!done) {
            began = wall();
            began_processor = processor();
        }
        char digits[ID_DIGITS + 1] = {0};
        if (envelope.message.body.len >= ID_DIGITS)
            memcpy(digits, envelope.message.body.bytes, ID_DIGITS);
        long number = atol(digits);
        if (number >= 0 && number < count && !seen[number]) {
            seen[number] = 1;
            distinct++;
        }
        if (amqp_basic_ack(connection, CHANNEL, envelope.delivery_tag, 0)) {
            fputs("an ack failed\n", stderr);
            return 1;
        }
        amqp_destroy_envelope(&envelope);
    }
    double seconds = wall() - began, seconds_processor = processor() - began_processor;
    /* A busy quorum queue keeps acks back, which a channel that ends at once would lose: cancelling
     * waits for the queue. */
    amqp_basic_cancel(connection, CHANNEL, tag);
    check(amqp_get_rpc_reply(connection), "cancelling");
    amqp_basic_qos(connection, CHANNEL, 0, 1, 0);
    check(amqp_get_rpc_reply(connection), "waiting for the acks");
    amqp_bytes_free(tag);
    check(amqp_channel_close(connection, CHANNEL, AMQP_REPLY_SUCCESS), "closing the channel");
    check(amqp_connection_close(connection, AMQP_REPLY_SUCCESS), "closing");
    printf("%ld %.9f %.9f\n", distinct, seconds, seconds_processor);
    return 0;
}
