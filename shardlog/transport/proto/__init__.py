"""The published protocol buffers, and how Python code is made from them."""
