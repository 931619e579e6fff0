"""What a real API server makes of our CRDs, our chart and our operator."""
