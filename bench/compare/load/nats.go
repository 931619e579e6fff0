package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A shard is a stream.  Appends are asynchronous publishes whose acknowledgements come to one inbox,
// as the client's own PublishAsync does it, but without a channel for each of them.
type jetStream struct {
	addresses []string
}

const (
	natsWindowRecords = 8_192
	natsWindowBytes   = 16 << 20
	natsCreators      = 16
	natsPullMessages  = 20_000
	natsAttempt       = 5 * time.Second
)

func (n *jetStream) window(valueBytes int) int {
	return max(16, min(natsWindowRecords, natsWindowBytes/valueBytes))
}

func stream(log string, shard int) string  { return fmt.Sprintf("%s-%d", log, shard) }
func subject(log string, shard int) string { return fmt.Sprintf("%s.%d", log, shard) }

func (n *jetStream) dial(addresses []string) (*nats.Conn, error) {
	return nats.Connect(strings.Join(addresses, ","),
		nats.DontRandomize(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond),
		nats.ReconnectJitter(0, 0), nats.ReconnectBufSize(64<<20), nats.Timeout(5*time.Second))
}

func (n *jetStream) create(ctx context.Context, log string, shards, replicas int) error {
	connection, err := n.dial(n.addresses)
	if err != nil {
		return err
	}
	defer connection.Close()
	context, err := jetstream.New(connection, jetstream.WithDefaultTimeout(20*time.Second))
	if err != nil {
		return err
	}
	if err := n.untilServed(ctx, context); err != nil {
		return err
	}
	numbers := make(chan int)
	failures := make(chan error, natsCreators)
	for range natsCreators {
		go func() {
			for number := range numbers {
				if err := createStream(ctx, context, log, number, replicas); err != nil {
					failures <- err
					return
				}
			}
			failures <- nil
		}()
	}
	for number := range shards {
		select {
		case numbers <- number:
		case err := <-failures:
			return err
		}
	}
	close(numbers)
	for range natsCreators {
		if err := <-failures; err != nil {
			return err
		}
	}
	return n.untilLed(ctx, context, log)
}

// What is asked while nobody leads is not answered, so it is asked again.
func createStream(
	ctx context.Context, asked jetstream.JetStream, log string, number, replicas int,
) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, natsAttempt)
		_, err := asked.CreateStream(attempt, jetstream.StreamConfig{
			Name: stream(log, number), Subjects: []string{subject(log, number)},
			Replicas: replicas, Storage: jetstream.FileStorage,
		})
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

func (n *jetStream) untilServed(ctx context.Context, asked jetstream.JetStream) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		_, err := asked.AccountInfo(attempt)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (n *jetStream) untilLed(ctx context.Context, context jetstream.JetStream, log string) error {
	for {
		found, err := context.Stream(ctx, stream(log, 0))
		if err == nil {
			cluster := found.CachedInfo().Cluster
			current := 0
			for _, replica := range cluster.Replicas {
				if replica.Current {
					current++
				}
			}
			if cluster.Leader != "" && current == len(cluster.Replicas) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not led: %w", log, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (n *jetStream) leader(ctx context.Context, log string) (string, error) {
	connection, err := n.dial(n.addresses)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	context, err := jetstream.New(connection)
	if err != nil {
		return "", err
	}
	found, err := context.Stream(ctx, stream(log, 0))
	if err != nil {
		return "", err
	}
	return found.CachedInfo().Cluster.Leader, nil
}

// The leader's address comes first: what is published elsewhere takes one hop more.
func (n *jetStream) leaderFirst(log string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	name, err := n.leader(ctx, log)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(name)
	if err != nil {
		return nil, err
	}
	addresses := slices.Clone(n.addresses)
	addresses[0], addresses[number] = addresses[number], addresses[0]
	return addresses, nil
}

type natsAppender struct {
	connection *nats.Conn
	subjects   []string
	inbox      string
	lock       sync.Mutex
	number     int
	waiting    map[string]func(error)
}

func (n *jetStream) connect(log string, use use) (appender, error) {
	addresses, err := n.leaderFirst(log)
	if err != nil {
		return nil, err
	}
	connection, err := n.dial(addresses)
	if err != nil {
		return nil, err
	}
	made := &natsAppender{
		connection: connection, inbox: nats.NewInbox() + ".", waiting: map[string]func(error){},
	}
	for shard := range 1_000 {
		made.subjects = append(made.subjects, subject(log, shard))
	}
	subscription, err := connection.Subscribe(made.inbox+"*", made.answered)
	if err != nil {
		return nil, err
	}
	return made, subscription.SetPendingLimits(-1, -1)
}

func (a *natsAppender) append(shard int, value []byte, done func(error)) {
	a.lock.Lock()
	a.number++
	token := strconv.Itoa(a.number)
	a.waiting[token] = done
	a.lock.Unlock()
	message := &nats.Msg{Subject: a.subjects[shard], Reply: a.inbox + token, Data: value}
	if err := a.connection.PublishMsg(message); err != nil {
		a.settle(token, err)
	}
}

func (a *natsAppender) answered(message *nats.Msg) {
	var err error
	if bytes.Contains(message.Data, []byte(`"error"`)) {
		err = errors.New(string(message.Data))
	} else if len(message.Data) == 0 {
		err = errors.New("nobody leads the stream: " + message.Header.Get("Status"))
	}
	a.settle(message.Subject[len(a.inbox):], err)
}

func (a *natsAppender) settle(token string, err error) {
	a.lock.Lock()
	done := a.waiting[token]
	delete(a.waiting, token)
	a.lock.Unlock()
	if done != nil {
		done(err)
	}
}

func (a *natsAppender) close() {
	a.connection.Close()
}

func (n *jetStream) read(
	ctx context.Context, log string, fromEnd bool, ready func(), each func(value []byte),
) error {
	addresses, err := n.leaderFirst(log)
	if err != nil {
		return err
	}
	connection, err := n.dial(addresses)
	if err != nil {
		return err
	}
	defer connection.Close()
	context, err := jetstream.New(connection)
	if err != nil {
		return err
	}
	policy := jetstream.DeliverAllPolicy
	if fromEnd {
		policy = jetstream.DeliverNewPolicy
	}
	consumer, err := context.OrderedConsumer(ctx, stream(log, 0),
		jetstream.OrderedConsumerConfig{DeliverPolicy: policy})
	if err != nil {
		return err
	}
	consuming, err := consumer.Consume(
		func(message jetstream.Msg) { each(message.Data()) },
		jetstream.PullMaxMessages(natsPullMessages))
	if err != nil {
		return err
	}
	defer consuming.Stop()
	ready()
	<-ctx.Done()
	return nil
}
