package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// etcd is no log: a record is a key of its own, in order.  Appends go to the leader, as with the
// --target-leader of etcd's own benchmark; those that outlive a leader know all members.
type etcd struct {
	addresses []string
}

const (
	// What etcd's documents measure with comes to more, but gives no more on few cores.
	etcdWindow      = 256
	etcdConnections = 16
	etcdPage        = 10_000
	etcdDial        = 5 * time.Second
)

func (e *etcd) window(valueBytes int) int {
	return max(16, min(etcdWindow, 64<<20/valueBytes))
}

func (e *etcd) dial(addresses []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: addresses, DialTimeout: etcdDial, Logger: zap.NewNop(),
		MaxCallSendMsgSize: 16 << 20, MaxCallRecvMsgSize: 256 << 20,
	})
}

func (e *etcd) create(ctx context.Context, log string, shards, replicas int) error {
	if shards > 1 {
		return fmt.Errorf("etcd has no shards")
	}
	_, err := e.leader(ctx, log)
	return err
}

func (e *etcd) leader(ctx context.Context, log string) (string, error) {
	client, err := e.dial(e.addresses)
	if err != nil {
		return "", err
	}
	defer client.Close()
	for {
		for number, address := range e.addresses {
			status, err := client.Status(ctx, address)
			if err == nil && status.Leader != 0 && status.Leader == status.Header.MemberId {
				return fmt.Sprint(number), nil
			}
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("nobody leads: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

type etcdAppender struct {
	clients []*clientv3.Client
	log     string
	number  atomic.Int64
}

func (e *etcd) connect(log string, use use) (appender, error) {
	addresses := e.addresses
	if use != survives {
		ctx, cancel := context.WithTimeout(context.Background(), drain)
		defer cancel()
		name, err := e.leader(ctx, log)
		if err != nil {
			return nil, err
		}
		var number int
		if _, err := fmt.Sscan(name, &number); err != nil {
			return nil, err
		}
		addresses = []string{addresses[number]}
	}
	connections := 1
	if use == saturates {
		connections = etcdConnections
	}
	made := &etcdAppender{log: log}
	made.number.Store(time.Now().UnixNano())
	for range connections {
		client, err := e.dial(addresses)
		if err != nil {
			return nil, err
		}
		made.clients = append(made.clients, client)
	}
	return made, nil
}

func (a *etcdAppender) append(shard int, value []byte, done func(error)) {
	number := a.number.Add(1)
	client := a.clients[int(number)%len(a.clients)]
	key := fmt.Sprintf("%s/%020d", a.log, number)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), drain)
		defer cancel()
		_, err := client.Put(ctx, key, string(value))
		done(err)
	}()
}

func (a *etcdAppender) close() {
	for _, client := range a.clients {
		client.Close()
	}
}

func (e *etcd) read(
	ctx context.Context, log string, fromEnd bool, ready func(), each func(value []byte),
) error {
	client, err := e.dial(e.addresses)
	if err != nil {
		return err
	}
	defer client.Close()
	prefix, end := log+"/", clientv3.GetPrefixRangeEnd(log+"/")
	if fromEnd {
		watch := client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
		for answer := range watch {
			if answer.Created {
				ready()
			}
			for _, event := range answer.Events {
				each(event.Kv.Value)
			}
		}
		return nil
	}
	for key := prefix; ; {
		page, err := client.Get(ctx, key, clientv3.WithRange(end), clientv3.WithLimit(etcdPage),
			clientv3.WithSerializable())
		if err != nil || len(page.Kvs) == 0 {
			return err
		}
		for _, pair := range page.Kvs {
			each(pair.Value)
		}
		key = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}
