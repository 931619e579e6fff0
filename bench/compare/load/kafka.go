package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// franz-go: idempotent with acks=all and five requests under way, as it is by default.
type kafka struct {
	addresses []string
}

const (
	kafkaBatchBytes    = 2 << 20
	kafkaLinger        = 5 * time.Millisecond
	kafkaWindowRecords = 100_000
	kafkaWindowBytes   = 64 << 20
	kafkaFetchBytes    = 16 << 20
)

func (k *kafka) window(valueBytes int) int {
	return max(16, min(kafkaWindowRecords, kafkaWindowBytes/valueBytes))
}

func (k *kafka) client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(k.addresses...),
		kgo.MetadataMinAge(100 * time.Millisecond),
	}, options...)...)
}

func (k *kafka) create(ctx context.Context, log string, shards, replicas int) error {
	client, err := k.client()
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	admin.SetTimeoutMillis(60_000)
	if _, err := admin.CreateTopic(ctx, int32(shards), int16(replicas), nil, log); err != nil {
		return err
	}
	for {
		topics, err := admin.ListTopics(ctx, log)
		if err != nil {
			return err
		}
		whole := 0
		for _, partition := range topics[log].Partitions {
			if partition.Leader >= 0 && len(partition.ISR) == replicas {
				whole++
			}
		}
		if whole == shards {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d partitions are whole", whole, shards)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (k *kafka) leader(ctx context.Context, log string) (string, error) {
	client, err := k.client()
	if err != nil {
		return "", err
	}
	defer client.Close()
	topics, err := kadm.NewClient(client).ListTopics(ctx, log)
	if err != nil {
		return "", err
	}
	return fmt.Sprint(topics[log].Partitions[0].Leader), nil
}

type kafkaAppender struct {
	client *kgo.Client
	log    string
}

func (k *kafka) connect(log string, use use) (appender, error) {
	linger := time.Duration(0)
	if use == saturates {
		linger = kafkaLinger
	}
	client, err := k.client(
		kgo.DefaultProduceTopic(log),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(kafkaBatchBytes),
		kgo.ProducerLinger(linger),
		kgo.MaxBufferedRecords(2*kafkaWindowRecords),
	)
	return &kafkaAppender{client, log}, err
}

func (a *kafkaAppender) append(shard int, value []byte, done func(error)) {
	record := &kgo.Record{Value: value, Partition: int32(shard)}
	a.client.Produce(context.Background(), record, func(_ *kgo.Record, err error) { done(err) })
}

func (a *kafkaAppender) close() {
	a.client.Close()
}

func (k *kafka) read(
	ctx context.Context, log string, fromEnd bool, ready func(), each func(value []byte),
) error {
	offset := kgo.NewOffset().At(0)
	if fromEnd {
		client, err := k.client()
		if err != nil {
			return err
		}
		ends, err := kadm.NewClient(client).ListEndOffsets(ctx, log)
		client.Close()
		if err != nil {
			return err
		}
		end, _ := ends.Lookup(log, 0)
		offset = kgo.NewOffset().At(end.Offset)
	}
	client, err := k.client(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{log: {0: offset}}),
		kgo.FetchMaxPartitionBytes(kafkaFetchBytes),
		kgo.FetchMaxBytes(4*kafkaFetchBytes),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	ready()
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) { each(record.Value) })
	}
}
